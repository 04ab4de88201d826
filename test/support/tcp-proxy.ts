import { createServer, type Socket, connect } from "node:net";

export type Fault =
  /** Both ends are closed. */
  | "cut"
  /** Both ends are reset: RST instead of FIN. */
  | "reset"
  /** Drops all bytes in both directions, and reports it to neither side. */
  | "stall"
  /** What the client said goes on, and no further answer comes back; then both ends are closed. */
  | "deaf";

export interface TcpProxy extends AsyncDisposable {
  readonly port: number;
  /** Arms one fault: it strikes once, on the connection whose bytes to the server `trigger` says yes to. */
  arm(fault: Fault, trigger: Trigger): void;
  /** The same for bytes that come from the server. Those that the trigger is asked about do not go on. */
  armAnswers(fault: Exclude<Fault, "deaf">, trigger: Trigger): void;
  /** Faults that have struck. */
  readonly struck: number;
  /** Of all connections, since it was opened. */
  readonly bytesFromServer: number;
}

/** Told of some bytes, and of how many came before them on their connection. */
type Trigger = (chunk: Buffer, bytesBefore: number) => boolean;

interface Armed {
  readonly fault: Fault;
  readonly trigger: Trigger;
}

/** Forwards connections to a port on this machine, until told otherwise. */
export async function tcpProxy(port: number): Promise<TcpProxy> {
  let armed: Armed | undefined;
  let armedAnswers: Armed | undefined;
  let bytesFromServer = 0;
  let struck = 0;
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const upstream = connect(port, "127.0.0.1");
    let bytes = 0;
    let stalled = false;
    let deaf = false;
    for (const [one, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      sockets.add(one);
      one.on("error", () => other.destroy());
      one.on("close", () => {
        sockets.delete(one);
        // What came before it must still get there; the ends of a stalled connection get no notice.
        if (!stalled || one === client) {
          other.end();
        }
      });
    }
    const strike = (fault: Fault, chunk: Buffer): void => {
      struck += 1;
      switch (fault) {
        case "cut":
          client.destroy();
          upstream.destroy();
          break;
        case "reset":
          client.resetAndDestroy();
          upstream.resetAndDestroy();
          break;
        case "stall":
          stalled = true;
          break;
        case "deaf":
          deaf = true;
          upstream.write(chunk);
          setTimeout(() => client.destroy(), 200);
          break;
      }
    };
    client.on("data", (chunk: Buffer) => {
      const fault = stalled ? undefined : armed;
      if (fault?.trigger(chunk, bytes) === true) {
        armed = undefined;
        strike(fault.fault, chunk);
      } else if (!stalled) {
        upstream.write(chunk);
      }
      bytes += chunk.length;
    });
    let answered = 0;
    upstream.on("data", (chunk: Buffer) => {
      bytesFromServer += chunk.length;
      const fault = stalled || deaf ? undefined : armedAnswers;
      if (fault?.trigger(chunk, answered) === true) {
        armedAnswers = undefined;
        strike(fault.fault, chunk);
      } else if (!stalled && !deaf) {
        client.write(chunk);
      }
      answered += chunk.length;
    });
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const address = server.address();
  return {
    port: typeof address === "object" && address !== null ? address.port : 0,
    arm(fault, trigger) {
      armed = { fault, trigger };
    },
    armAnswers(fault, trigger) {
      armedAnswers = { fault, trigger };
    },
    get struck() {
      return struck;
    },
    get bytesFromServer() {
      return bytesFromServer;
    },
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) {
        socket.destroy();
      }
      await new Promise((done) => server.close(done));
    },
  };
}
