import type { FromDecodeThread, ToDecodeThread } from "#src/scoring/workers/decode-protocol.js";
import type { Line } from "#src/util/worker-port.js";

/** A thread that answers as the test says. */
export function scripted(answer: (message: ToDecodeThread, send: (message: FromDecodeThread) => void) => void): {
  line: Line;
  heard: ToDecodeThread[];
} {
  const heard: ToDecodeThread[] = [];
  let tell: ((message: unknown) => void) | undefined;
  const line: Line = {
    postMessage(message) {
      heard.push(message as ToDecodeThread);
      answer(message as ToDecodeThread, (reply) => {
        setImmediate(() => {
          tell?.(reply);
        });
      });
    },
    on(event, hear) {
      tell = event === "message" ? hear : tell;
    },
  };
  return { line, heard };
}
