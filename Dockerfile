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
# With a GPU, from an image with nvcc; cuBLASLt is taken from it, in a layer of its own:
#   docker build --build-arg BASE=nvidia/cuda:13.0.1-devel-ubuntu24.04 -t inferd:cuda .
#   docker run --rm --gpus all -v inferd-cache:/var/cache/inferd -p 127.0.0.1:8000:8000 inferd:cuda
# Several cards, by NCCL, which wants more of /dev/shm than the 64 MB of a container:
#   docker run --rm --gpus all --shm-size=1g -v inferd-cache:/var/cache/inferd -v /path/to/model:/model:ro \
#     -p 127.0.0.1:8000:8000 inferd:cuda serve /model --tensor-parallel-size 2 --tensor-parallel-mode fast
# There is no distribution in the image: no shell, no package manager (scripts/image_root).
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS build
ARG COMMIT=unknown
# The distribution decides the versions, so that a build has its security updates.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends make git ca-certificates libzmq5
WORKDIR /src
COPY . .
# An image is built without a GPU: with nvcc it is made for one nevertheless.
RUN export CUDA=0; [ ! -x /usr/local/cuda/bin/nvcc ] || CUDA=1; scripts/bootstrap build && \
    make -j"$(nproc)" COMMIT=${COMMIT} install PREFIX=/usr DESTDIR=/out && \
    scripts/image_root /out /layers

FROM scratch
ARG COMMIT=unknown
LABEL org.opencontainers.image.revision=${COMMIT} org.opencontainers.image.licenses=Apache-2.0
COPY --from=build /layers/cublas /
COPY --from=build /layers/nccl /
COPY --from=build /layers/base /
COPY --from=build /layers/inferd /
ENV PATH=/usr/bin INFERD_HOST=0.0.0.0 INFERD_ALLOW_UNAUTHENTICATED=true \
    CACHE_DIRECTORY=/var/cache/inferd CUDA_CACHE_PATH=/var/cache/inferd/ptx \
    INFERD_DRAIN_DELAY=2s INFERD_DRAIN_TIMEOUT=6s \
    NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 65534:65534
EXPOSE 8000
HEALTHCHECK --interval=10s --start-period=15m CMD ["inferd", "health", "--ready"]
ENTRYPOINT ["inferd"]
CMD ["serve", "/usr/share/inferd/models/demo"]
