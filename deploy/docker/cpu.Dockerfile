# SPDX-License-Identifier: Apache-2.0
# The manager, the CPU worker, the OpenAI gateway and quirectl on Debian 12, with the bundled model.
#   docker build -f deploy/docker/cpu.Dockerfile -t quire-cpu:0.1 .

FROM debian:12-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends \
      g++ cmake ninja-build pkg-config \
      libabsl-dev libgrpc++-dev libssl-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc prometheus-cpp-dev \
      libgtest-dev libgmock-dev nlohmann-json3-dev libpcre2-dev libutf8proc-dev libcli11-dev libyaml-cpp-dev \
      libcurl4-openssl-dev libboost-dev libjs-marked libucx-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN cmake --preset release -DQUIRE_CUDA=OFF \
    && ninja -C build/release quire_installed \
    && cmake --install build/release --component runtime --prefix /opt/quire --strip \
    && cmake --install build/release --component ranks --prefix /opt/quire --strip

FROM debian:12-slim
# The libraries that the programs load, and nothing else.
RUN apt-get update && apt-get install -y --no-install-recommends \
      libabsl20220623 libcurl4 libgrpc++1.51 libgrpc29 libpcre2-8-0 libprometheus-cpp-core1.0 \
      libprotobuf32 libssl3 libucx0 libutf8proc2 libyaml-cpp0.7 \
    && rm -rf /var/lib/apt/lists/*
COPY models/tales /usr/share/quire/models/tales
COPY LICENSE README.md /usr/share/doc/quire/
COPY --from=build /opt/quire/share/doc/quire/marked.copyright /usr/share/doc/quire/
COPY --from=build /opt/quire/bin/quire-manager /opt/quire/bin/quire-worker /opt/quire/bin/quire-openai \
     /opt/quire/bin/quirectl /opt/quire/bin/libquire_ucx.so /opt/quire/bin/
ENV PATH=/opt/quire/bin:/usr/bin:/bin
# This user has no name in the container and needs none. The programs write nothing, so run the container with --read-only.
USER 10001:10001
STOPSIGNAL SIGTERM
CMD ["quire-manager", "--help"]
