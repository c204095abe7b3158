# A small image of inferd with its demo model. Build: docker build -t inferd .
#   docker run --rm -p 127.0.0.1:8000:8000 inferd
#   docker run --rm -p 127.0.0.1:8000:8000 -v /path/to/model:/model:ro inferd serve /model
#   docker run --rm -p 127.0.0.1:8000:8000 -v inferd-cache:/var/cache/inferd inferd \
#     serve --pull ORG/NAME
# The container listens on all its addresses without keys, so publish the port on loopback only, or
# give keys: -e INFERD_API_KEY=...
# `docker stop` waits 10 s, a drain takes up to 60: --stop-timeout 70 lets requests finish.
# With a GPU, from CUDA 13 images (devel has nvcc, runtime has cuBLASLt):
#   docker build --build-arg BASE=nvidia/cuda:13.0.1-devel-ubuntu24.04 \
#     --build-arg RUNTIME=nvidia/cuda:13.0.1-runtime-ubuntu24.04 -t inferd:cuda .
#   docker run --rm --gpus all -v inferd-cache:/var/cache/inferd -p 127.0.0.1:8000:8000 inferd:cuda
ARG BASE=debian:bookworm-slim
ARG RUNTIME=debian:bookworm-slim

FROM ${BASE} AS build
RUN apt-get update && apt-get install -y --no-install-recommends make git
WORKDIR /src
COPY . .
RUN scripts/bootstrap build && make all

FROM ${RUNTIME}
RUN apt-get update && apt-get install -y --no-install-recommends \
      libmicrohttpd12 libuv1 libcjson1 libpcre2-8-0 libcurl4 ca-certificates && rm -rf /var/lib/apt/lists/* && \
    install -d -o 65534 -g 65534 /var/cache/inferd
COPY --from=build /src/build/inferd /src/build/inferd-pull /usr/bin/
COPY --from=build /src/models/demo /usr/share/inferd/models/demo
ENV INFERD_HOST=0.0.0.0 INFERD_ALLOW_UNAUTHENTICATED=true CACHE_DIRECTORY=/var/cache/inferd
USER 65534:65534
EXPOSE 8000
HEALTHCHECK --interval=5s --start-period=60s CMD ["inferd", "health"]
ENTRYPOINT ["inferd"]
CMD ["serve", "/usr/share/inferd/models/demo"]
