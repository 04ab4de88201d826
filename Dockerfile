# docker build -t infer-batch:0.1.0 .                     scores on CPUs
# docker build -t infer-batch:0.1.0-gpu --target gpu .    scores on NVIDIA GPUs (linux/amd64)
# docker run --rm --read-only --user "$(id -u)" -v "$PWD:/jobs" infer-batch:0.1.0 infer-batch run /jobs/job.yaml
# The bases are tags, which move: `sh scripts/pin-bases.sh` pins them here by digest, as the registry has them then.
ARG NODE=node:24-slim
# CUDA 13 and cuDNN 9, as ONNX Runtime 1.30's CUDA files want them; what they miss in another one fails the build.
ARG CUDA=nvidia/cuda:13.0.1-cudnn-runtime-ubuntu24.04

FROM ${NODE} AS build
WORKDIR /src
COPY package.json package-lock.json ./
RUN npm ci --ignore-scripts --no-audit --no-fund
COPY tsconfig.json tsconfig.build.json ./
COPY scripts scripts
COPY src src
RUN npm run build

# What runs: the bundle and the native packages, of this platform alone. tokenizers is for jobs that tokenize texts. npm passes over a platform's package that
# its registry does not have, so they are loaded once: an image without one must not come into being.
FROM ${NODE} AS app
WORKDIR /app
COPY package.json package-lock.json ./
RUN npm ci --omit=dev --ignore-scripts --no-audit --no-fund \
 && node -e 'require("@duckdb/node-bindings")'
# The npm package has a copy of ONNX Runtime's libraries in its place (scripts/vendor.mjs).
COPY --from=build /src/node_modules/onnxruntime-node node_modules/onnxruntime-node
RUN find node_modules/onnxruntime-node/bin -mindepth 3 -maxdepth 3 -type d \
    ! -path "*/linux/$(node -p process.arch)" -exec rm -r {} + \
 && ORT_DISABLE_TELEMETRY=1 node -e 'require("/app/node_modules/onnxruntime-node/bin/napi-v6/linux/" + process.arch + "/onnxruntime_binding.node")'
COPY --from=build /src/node_modules/tokenizers node_modules/tokenizers
RUN find node_modules/tokenizers -name '*.node' ! -name "tokenizers.linux-$(node -p process.arch)-*.node" -delete \
 && node -e 'require("tokenizers")'
COPY README.md CHANGELOG.md LICENSE ./
COPY bin bin
COPY --from=build /src/dist/bundle dist/bundle

# ONNX Runtime's CUDA and TensorRT files are no part of the npm package: its install script fetches them from NuGet.
# `true` forces that. In 1.30 the script ignores `cuda12`, though its comments name it.
FROM build AS cuda
RUN ONNXRUNTIME_NODE_INSTALL=true node node_modules/onnxruntime-node/script/install.js
FROM app AS app-gpu
COPY --from=cuda /src/node_modules/onnxruntime-node/bin/napi-v6/linux/x64 node_modules/onnxruntime-node/bin/napi-v6/linux/x64

FROM ${CUDA} AS gpu
COPY --from=app /usr/local/bin/node /usr/local/bin/node
COPY --from=app-gpu /app /app
# libcuda is the driver's: it comes with the machine. cuDNN is in the base; it is looked for when a model needs it.
RUN ldd /app/node_modules/onnxruntime-node/bin/napi-v6/linux/x64/libonnxruntime_providers_cuda.so > /tmp/needs \
 && awk '/not found/ && !/libcuda\.so/ { print; missing = 1 } END { exit missing }' /tmp/needs \
 && rm /tmp/needs
# Text vectorizers of scikit-learn name the locale en_US.UTF-8. The bases have C.UTF-8, with the same rules for the case of letters.
RUN ln -s /app/bin/infer-batch.js /usr/local/bin/infer-batch \
 && ln -s C.utf8 /usr/lib/locale/en_US.utf8 \
 && test -e /usr/lib/locale/en_US.utf8/LC_CTYPE \
 && install -d -m 1777 /scratch
ENV NODE_ENV=production HOME=/scratch TMPDIR=/scratch XDG_CACHE_HOME=/scratch/cache
# What is fetched and what is on its way to a store. With --read-only, all that is written outside of the output.
VOLUME /scratch
USER 10001:10001
# In place of the base's, which would stand before the command. No init is needed: as the first process
# the program handles signals, and it waits for each program that it starts.
ENTRYPOINT []
CMD ["infer-batch", "--help"]

# The last one is built where no target is named.
FROM ${NODE} AS cpu
COPY --from=app /app /app
RUN ln -s /app/bin/infer-batch.js /usr/local/bin/infer-batch \
 && ln -s C.utf8 /usr/lib/locale/en_US.utf8 \
 && test -e /usr/lib/locale/en_US.utf8/LC_CTYPE \
 && install -d -m 1777 /scratch
ENV NODE_ENV=production HOME=/scratch TMPDIR=/scratch XDG_CACHE_HOME=/scratch/cache
VOLUME /scratch
USER 10001:10001
ENTRYPOINT []
CMD ["infer-batch", "--help"]
