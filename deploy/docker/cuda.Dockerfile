# SPDX-License-Identifier: Apache-2.0
# The programs of cpu.Dockerfile, with a worker for NVIDIA GPUs of sm_80 and newer. CUDA comes from NVIDIA's archive for
# Debian 12, because it is not in Debian's main archive. The NVIDIA container toolkit mounts the driver's libraries.
#   docker build -f deploy/docker/cuda.Dockerfile -t quire-cuda:0.1 .

ARG CUDA=13-0

FROM debian:12-slim AS nvidia
ADD https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/cuda-keyring_1.1-1_all.deb /tmp/keyring.deb
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates \
    && dpkg -i /tmp/keyring.deb \
    && rm -rf /tmp/keyring.deb /var/lib/apt/lists/*

FROM nvidia AS build
ARG CUDA
RUN apt-get update && apt-get install -y --no-install-recommends \
      g++ cmake ninja-build pkg-config \
      libabsl-dev libgrpc++-dev libssl-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc prometheus-cpp-dev \
      libgtest-dev libgmock-dev nlohmann-json3-dev libpcre2-dev libutf8proc-dev libcli11-dev libyaml-cpp-dev \
      libcurl4-openssl-dev libboost-dev libjs-marked libucx-dev \
      cuda-nvcc-${CUDA} cuda-cudart-dev-${CUDA} libcublas-dev-${CUDA} \
    && rm -rf /var/lib/apt/lists/*
ENV PATH=/usr/local/cuda/bin:/usr/bin:/bin
WORKDIR /src
COPY . .
RUN cmake --preset release -DQUIRE_CUDA=ON \
    && ninja -C build/release quire_installed \
    && cmake --install build/release --component runtime --prefix /opt/quire --strip \
    && cmake --install build/release --component ranks --prefix /opt/quire --strip \
    && strip build/release/bin/libquire_cuda.so

FROM nvidia
ARG CUDA
# The libraries that the programs and the worker's libraries for GPUs and ranks load, and nothing else.
RUN apt-get update && apt-get install -y --no-install-recommends \
      libabsl20220623 libcurl4 libgrpc++1.51 libgrpc29 libpcre2-8-0 libprometheus-cpp-core1.0 \
      libprotobuf32 libssl3 libucx0 libutf8proc2 libyaml-cpp0.7 \
      libcublas-${CUDA} \
    && rm -rf /var/lib/apt/lists/* \
    && install -d -o 10001 -g 10001 /var/cache/quire
COPY models/tales /usr/share/quire/models/tales
COPY LICENSE README.md /usr/share/doc/quire/
COPY --from=build /opt/quire/share/doc/quire/marked.copyright /usr/share/doc/quire/
# The worker looks for its libraries in its own folder.
COPY --from=build /opt/quire/bin/quire-manager /opt/quire/bin/quire-openai /opt/quire/bin/quire-worker \
     /opt/quire/bin/quirectl /opt/quire/bin/libquire_ucx.so /src/build/release/bin/libquire_cuda.so /opt/quire/bin/
ENV PATH=/opt/quire/bin:/usr/bin:/bin \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    CUDA_CACHE_PATH=/var/cache/quire/cuda
USER 10001:10001
STOPSIGNAL SIGTERM
CMD ["quire-manager", "--help"]
