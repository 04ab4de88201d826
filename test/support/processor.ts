import { readFileSync } from "node:fs";

/**
 * Whether this processor adds up products of 8-bit integers without cutting sums off (VNNI, or ARM): ONNX Runtime gives other
 * predictions for INT8 models on one that does not, in Python, too.
 */
export const hasExactInt8 =
  process.platform !== "linux" || process.arch !== "x64" || /vnni/.test(readFileSync("/proc/cpuinfo", "utf8"));
