# A small image of inferd with its demo model.
#   docker build -t inferd --build-arg COMMIT=$(git rev-parse --short=12 HEAD) .
#   docker run --rm -p 127.0.0.1:8000:8000 inferd
#   docker run --rm -p 127.0.0.1:8000:8000 -v /path/to/model:/model:ro inferd serve /model
#   docker run --rm -p 127.0.0.1:8000:8000 -v inferd-cache:/var/cache/inferd inferd \
#     serve --pull ORG/NAME
# The container listens on all its addresses without keys, so publish the port on loopback only, or
# give keys: -e INFERD_API_KEY=...
# `docker stop` waits 10 s: the image spends 2 on being seen as not ready and 6 on letting requests
# finish. With --stop-timeout 70 and -e INFERD_DRAIN_TIMEOUT=60s longer answers finish too.
# With a GPU, from CUDA 13 images (devel has nvcc, runtime has cuBLASLt):
#   docker build --build-arg BASE=nvidia/cuda:13.0.1-devel-ubuntu24.04 \
#     --build-arg RUNTIME=nvidia/cuda:13.0.1-runtime-ubuntu24.04 -t inferd:cuda .
#   docker run --rm --gpus all -v inferd-cache:/var/cache/inferd -p 127.0.0.1:8000:8000 inferd:cuda
ARG BASE=debian:bookworm-slim
ARG RUNTIME=debian:bookworm-slim

FROM ${BASE} AS build
ARG COMMIT=unknown
RUN apt-get update && apt-get install -y --no-install-recommends make git
WORKDIR /src
COPY . .
RUN scripts/bootstrap build && make COMMIT=${COMMIT} install PREFIX=/usr DESTDIR=/out

FROM ${RUNTIME}
ARG COMMIT=unknown
LABEL org.opencontainers.image.revision=${COMMIT} org.opencontainers.image.licenses=Apache-2.0
RUN apt-get update && apt-get install -y --no-install-recommends \
      libmicrohttpd12 libgnutls30 libuv1 libcjson1 libpcre2-8-0 libcurl4 libzmq5 ca-certificates && rm -rf /var/lib/apt/lists/* && \
    install -d -o 65534 -g 65534 /var/cache/inferd
COPY --from=build /out/usr/bin/inferd /out/usr/bin/inferd-pull /usr/bin/
COPY --from=build /out/usr/share/inferd /usr/share/inferd
ENV INFERD_HOST=0.0.0.0 INFERD_ALLOW_UNAUTHENTICATED=true CACHE_DIRECTORY=/var/cache/inferd \
    INFERD_DRAIN_DELAY=2s INFERD_DRAIN_TIMEOUT=6s
USER 65534:65534
EXPOSE 8000
HEALTHCHECK --interval=10s --start-period=15m CMD ["inferd", "health", "--ready"]
ENTRYPOINT ["inferd"]
CMD ["serve", "/usr/share/inferd/models/demo"]
