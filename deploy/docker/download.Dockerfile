# SPDX-License-Identifier: Apache-2.0
# quire-download on Debian 12, for containers that download a model before a worker starts.
#   docker build -f deploy/docker/download.Dockerfile -t quire-download:0.1 .

FROM debian:12-slim
# A named volume of Docker gets the owner of the folder on which it is mounted.
RUN apt-get update && apt-get install -y --no-install-recommends \
      ca-certificates python3 \
    && rm -rf /var/lib/apt/lists/* \
    && install -d -o 10001 -g 10001 /models
COPY LICENSE README.md /usr/share/doc/quire/
COPY download/quire-download /opt/quire/bin/
COPY download/hub_download.py download/hub_server.py download/model_name.py download/partial_file.py \
     /opt/quire/share/quire/download/
ENV PATH=/opt/quire/bin:/usr/bin:/bin \
    HF_HUB_CACHE=/models
# This user has no name in the container and needs none. It writes to the cache alone.
USER 10001:10001
CMD ["quire-download", "--help"]
