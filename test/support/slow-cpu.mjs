/*
 * Given to node with --import: each call of a model on the CPU provider of ONNX Runtime takes at least SLOW_CPU_MS
 * milliseconds, in which its thread does nothing else. Other providers are as fast as ever.
 */
import { createRequire } from "node:module";

const require = createRequire(import.meta.url);
const { platform, arch } = process;
const binding = require(`onnxruntime-node/bin/napi-v6/${platform}/${arch}/onnxruntime_binding.node`);
const ms = Number(process.env.SLOW_CPU_MS ?? "0");
const nothing = new Int32Array(new SharedArrayBuffer(4));

binding.InferenceSession = class extends binding.InferenceSession {
  #isOnCpu = false;

  loadModel(...args) {
    const [first = "cpu"] = args.at(-1)?.executionProviders ?? [];
    this.#isOnCpu = (first.name ?? first) === "cpu";
    return super.loadModel(...args);
  }

  run(...args) {
    if (this.#isOnCpu) {
      Atomics.wait(nothing, 0, 0, ms);
    }
    return super.run(...args);
  }
};
