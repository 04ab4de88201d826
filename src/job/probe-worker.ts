import * as onnxruntime from "onnxruntime-node";
import type { Provider } from "./jobfile/engine-spec.js";
import { messageOf } from "../base/errors.js";
import { runSmallestModel } from "../models/onnx/session.js";

/**
 * Runs in a process of its own: opens and runs the smallest model on the execution provider that is the first argument.
 * Prints what ONNX Runtime says if that fails. What a driver prints, and a crash in it, stay in this process.
 */

async function probe(provider: Provider): Promise<void> {
  onnxruntime.env.logLevel = "fatal";
  try {
    await runSmallestModel(onnxruntime, provider);
  } catch (error) {
    process.stdout.write(messageOf(error));
    process.exitCode = 1;
  }
}

const [, , asked = "cpu"] = process.argv;
void probe(asked as Provider); // by `probeProvider`, which has one
