import type { FromUnitServer, ToUnitServer } from "#src/scoring/workers/protocol.js";
import type { WorkerPort } from "#src/util/worker-port.js";

/** A worker that answers as the test says. */
export function scripted(answer: (message: ToUnitServer, send: (message: FromUnitServer) => void) => void): {
  port: WorkerPort;
  heard: ToUnitServer[];
} {
  const heard: ToUnitServer[] = [];
  let tell: ((message: unknown) => void) | undefined;
  const port: WorkerPort = {
    postMessage(message) {
      heard.push(message as ToUnitServer);
      answer(message as ToUnitServer, (reply) => {
        setImmediate(() => {
          tell?.(reply);
        });
      });
    },
    on(event, hear) {
      tell = event === "message" ? hear : tell;
    },
  };
  return { port, heard };
}
