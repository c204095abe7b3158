# A small image of inferd with its demo model. Build: docker build -t inferd .
#   docker run --rm -p 127.0.0.1:8000:8000 inferd
#   docker run --rm -p 127.0.0.1:8000:8000 -v /path/to/model:/model:ro inferd serve /model
# The container listens on all its addresses without keys, so publish the port on loopback only, or
# give keys: -e INFERD_API_KEY=...

FROM debian:bookworm-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends make git
WORKDIR /src
COPY . .
RUN scripts/bootstrap build && make all

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends \
      libmicrohttpd12 libuv1 libcjson1 && rm -rf /var/lib/apt/lists/*
COPY --from=build /src/build/inferd /usr/bin/inferd
COPY --from=build /src/models/demo /usr/share/inferd/models/demo
ENV INFERD_HOST=0.0.0.0 INFERD_ALLOW_UNAUTHENTICATED=true
USER 65534:65534
EXPOSE 8000
HEALTHCHECK --interval=5s --start-period=60s CMD ["inferd", "health"]
ENTRYPOINT ["inferd"]
CMD ["serve", "/usr/share/inferd/models/demo"]
