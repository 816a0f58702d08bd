# The image of a cluster's pods: hsweep with what it needs, of the versions that were tested.
#
#   docker build -t REGISTRY/hsweep .
#   docker build -t REGISTRY/mine --build-arg EXTRA="wandb peft" .     # with packages that your sweep imports
FROM python:3.11-slim

# KubeRay asks the pods by wget whether they live; git tells which commit a sweep is of.
RUN apt-get update && apt-get install -y --no-install-recommends git wget && rm -rf /var/lib/apt/lists/*

WORKDIR /src
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY hsweep hsweep
COPY models models
COPY tasks tasks
COPY analysis analysis
COPY sweeps sweeps
ARG EXTRA=""
RUN pip install --no-cache-dir -c constraints.txt . ${EXTRA}

WORKDIR /home
