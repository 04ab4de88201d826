import { connect, isIP, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { BrokenTransfer } from "./failures.js";

/** What a connection leads to. */
export interface Peer {
  readonly secure: boolean;
  readonly host: string;
  readonly port: number;
}

/** Told of what a connection brings. */
export interface Listener {
  /** Bytes that hold until it returns. */
  heard(bytes: Buffer): void;
  /** Nothing more will come; without an error the peer has ended it. Told once. */
  lost(error?: Error): void;
}

/** A connection, and the one buffer that all of its bytes come in. */
export interface Connection {
  /** Whether it has brought an answer before: then the peer may have closed it meanwhile. */
  readonly used: boolean;
  /** Sends a request; `listener` is told of all that comes from now on. */
  send(text: string, listener: Listener): void;
  /** The answer is complete: it may be used again. */
  keep(): void;
  destroy(): void;
}

export interface Connections extends Disposable {
  /** One that is idle, or a new one. `fresh`: a new one. */
  take(peer: Peer, options?: { readonly fresh?: boolean }): Connection;
}

/**
 * What a socket gives at once. Node's streams give each piece a buffer of its own: at 500 MB/s they cost more, in
 * memory that is taken and swept up, than receiving the bytes.
 */
const bufferBytes = 256 * 1024;

/** Stores close what is idle for longer; a request that meets that is lost. */
const idleMs = 4000;

export function openConnections(connectMs: number): Connections {
  /** The one that was used last comes last. */
  const idle: (Kept & { readonly name: string })[] = [];
  const open = new Set<Socket>();
  const sessions = new Map<string, Buffer>();
  const dial = (peer: Peer): Connection => {
    const name = nameOf(peer);
    const kept = dialed(peer, { connectMs, session: sessions.get(name) }, (one) => {
      idle.push({ ...one, name });
    });
    const { socket } = kept;
    open.add(socket);
    socket.on("session", (session: Buffer) => sessions.set(name, session));
    socket.once("close", () => {
      open.delete(socket);
      const place = idle.findIndex((one) => one.socket === socket);
      if (place >= 0) {
        idle.splice(place, 1);
      }
    });
    return kept.connection;
  };
  return {
    take(peer, { fresh = false } = {}) {
      const name = nameOf(peer);
      const now = performance.now();
      for (const { socket } of idle.filter(({ sinceMs }) => now - sinceMs > idleMs)) {
        socket.destroy();
      }
      const place = idle.findLastIndex((one) => one.name === name && !one.socket.destroyed);
      const [found] = fresh || place < 0 ? [] : idle.splice(place, 1);
      return found?.connection ?? dial(peer);
    },
    [Symbol.dispose]() {
      for (const socket of open) {
        socket.destroy();
      }
    },
  };
}

interface Kept {
  readonly connection: Connection;
  readonly socket: Socket;
  /** When it became idle. */
  readonly sinceMs: number;
}

function dialed(
  peer: Peer,
  { connectMs, session }: { connectMs: number; session: Buffer | undefined },
  onKept: (kept: Kept) => void,
): Kept {
  let listener: Listener | undefined;
  let used = false;
  const socket = socketTo(peer, session, (bytes) => {
    if (listener === undefined) {
      socket.destroy(); // nobody has asked for anything
    } else {
      listener.heard(bytes);
    }
  });
  untilLost(socket, { peer, connectMs }, (error) => {
    const told = listener;
    listener = undefined;
    socket.destroy();
    told?.lost(error);
  });
  const connection: Connection = {
    get used() {
      return used;
    },
    send(text, to) {
      listener = to;
      socket.write(text, "latin1");
    },
    keep() {
      listener = undefined;
      used = true;
      onKept({ connection, socket, sinceMs: performance.now() });
    },
    destroy() {
      listener = undefined;
      socket.destroy();
    },
  };
  return { connection, socket, sinceMs: 0 };
}

/** Calls `lost` when a socket ends, fails, or is not connected in time. */
function untilLost(
  socket: Socket,
  { peer, connectMs }: { peer: Peer; connectMs: number },
  lost: (error?: Error) => void,
): void {
  const late = setTimeout(() => {
    lost(new BrokenTransfer(`no connection to ${nameOf(peer)} within ${connectMs / 1000} s`));
  }, connectMs);
  socket
    .once(peer.secure ? "secureConnect" : "connect", () => {
      clearTimeout(late);
    })
    .once("close", () => {
      clearTimeout(late);
      lost();
    })
    .on("error", lost);
}

function socketTo({ secure, host, port }: Peer, session: Buffer | undefined, heard: (bytes: Buffer) => void): Socket {
  const onread = {
    buffer: Buffer.allocUnsafeSlow(bufferBytes),
    callback(count: number, buffer: Uint8Array): boolean {
      heard(Buffer.from(buffer.buffer, buffer.byteOffset, count));
      return true;
    },
  };
  const options = { host, port, noDelay: true, onread };
  return secure
    ? connectTls({
        ...options,
        servername: isIP(host) === 0 ? host : "",
        ...(session === undefined ? {} : { session }),
      })
    : connect(options);
}

function nameOf({ secure, host, port }: Peer): string {
  return `${secure ? "https" : "http"}://${host}:${port}`;
}
