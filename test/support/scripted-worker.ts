import type { SentRows } from "#src/flow/workers/protocol.js";
import type { ToClient, ToServer, WorkerPort } from "#src/base/rpc.js";

/** How a call is answered. */
export interface Answer {
  rows(rows: SentRows): void;
  /** The unit is read, without a failure. */
  end(): void;
}

/** A worker that answers each unit it is to read as the test says. */
export function scripted(answerCall: (answer: Answer) => void): { port: WorkerPort; heard: ToServer[] } {
  const heard: ToServer[] = [];
  let tell: ((message: unknown) => void) | undefined;
  const send = (message: ToClient): void => {
    setImmediate(() => {
      tell?.(message);
    });
  };
  const port: WorkerPort = {
    postMessage(message) {
      const received = message as ToServer;
      heard.push(received);
      if (received.rpc === "call") {
        const { id } = received;
        answerCall({
          rows(body) {
            send({ rpc: "item", id, body });
          },
          end() {
            send({ rpc: "result", id, body: undefined });
          },
        });
      }
    },
    on(event, listener) {
      tell = event === "message" ? listener : tell;
    },
  };
  return { port, heard };
}
