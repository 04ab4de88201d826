// A load of HTTP requests by the clock: each is sent when it is due, whether or not earlier ones are answered, and its
// latency counts from then on. It writes ready bytes into sockets, so that it takes a fraction of a server's time.
import { once } from "node:events";
import { connect } from "node:net";

/** So many connections are there before the first request, as from proxies. Node accepts one in a turn of its event loop. */
const fewestConnections = 512;
/** So many are open at most; a request that is due while all wait for answers is counted as unsent. */
const mostConnections = 4000;
/** Answers that take longer after the last request are counted as lost. */
const patienceMs = 20_000;

/**
 * @typedef {object} Load
 * @property {ReadonlyMap<number, readonly number[]>} byStatus latencies in milliseconds, sorted; 0: no answer, or cut off
 * @property {readonly number[]} lateMs how late requests were sent, sorted: what the generator itself adds
 * @property {number} seconds until the last answer came
 */

/**
 * Sends requests to 127.0.0.1. With `rate`, so many a second on average, at random moments as from many clients; without
 * it, `atOnce` are always in flight, which finds out how many a server can answer.
 * @param {number} port
 * @param {readonly Buffer[]} requests whole ones, which are taken in turn
 * @param {{ rate?: number, atOnce?: number, seconds: number, random?: () => number }} how
 * @returns {Promise<Load>}
 */
export async function sendLoad(port, requests, { rate, atOnce = 0, seconds, random = Math.random }) {
  const byStatus = new Map();
  const lateMs = [];
  const idle = [];
  const connections = new Set();
  let [inFlight, sent] = [0, 0];
  const count = (status, dueMs) => {
    const times = byStatus.get(status) ?? [];
    byStatus.set(status, times);
    times.push(performance.now() - dueMs);
  };
  const open = () => {
    const connection = { socket: connect(port, "127.0.0.1"), dueMs: undefined, received: undefined };
    connections.add(connection);
    connection.socket.setNoDelay(true);
    connection.socket.on("error", () => undefined);
    connection.socket.on("close", () => {
      connections.delete(connection);
      const at = idle.indexOf(connection);
      if (at !== -1) {
        idle.splice(at, 1);
      }
      end(connection, 0);
    });
    connection.socket.on("data", (chunk) => {
      const received = connection.received === undefined ? chunk : Buffer.concat([connection.received, chunk]);
      connection.received = received;
      const head = received.indexOf("\r\n\r\n");
      const length = /\r\ncontent-length: *(\d+)/i.exec(received.latin1Slice(0, head))?.[1];
      if (head === -1 || received.length < head + 4 + Number(length ?? 0)) {
        return;
      }
      end(connection, Number(received.latin1Slice(9, 12)));
      if (!/\r\nconnection: *close/i.test(received.latin1Slice(0, head))) {
        connection.received = undefined;
        idle.push(connection);
      }
    });
    return connection;
  };
  const end = (connection, status) => {
    if (connection.dueMs !== undefined) {
      count(status, connection.dueMs);
      connection.dueMs = undefined;
      inFlight -= 1;
    }
  };
  const send = (dueMs) => {
    if (idle.length === 0 && connections.size >= mostConnections) {
      count(0, dueMs);
      return;
    }
    const connection = idle.pop() ?? open();
    lateMs.push(performance.now() - dueMs);
    connection.dueMs = dueMs;
    inFlight += 1;
    connection.socket.write(requests[sent % requests.length]);
    sent += 1;
  };

  while (connections.size < (atOnce || fewestConnections)) {
    const connection = open();
    await once(connection.socket, "connect");
    idle.push(connection);
  }
  const startMs = performance.now();
  const endMs = startMs + seconds * 1000;
  return await new Promise((resolve) => {
    let nextMs = startMs;
    const step = () => {
      const now = performance.now();
      if (rate === undefined) {
        for (let free = now < endMs ? atOnce - inFlight : 0; free > 0; free -= 1) {
          send(now);
        }
      } else {
        for (; nextMs <= now && nextMs < endMs; nextMs -= (Math.log(1 - random()) / rate) * 1000) {
          send(nextMs);
        }
      }
      if (now < endMs || (inFlight > 0 && now < endMs + patienceMs)) {
        setImmediate(step); // a timer would be late by up to a millisecond, and send in bursts
        return;
      }
      for (const connection of connections) {
        end(connection, 0);
        connection.socket.destroy();
      }
      const sorted = [...byStatus].map(([status, times]) => [status, times.toSorted((a, b) => a - b)]);
      resolve({
        byStatus: new Map(sorted),
        lateMs: lateMs.toSorted((a, b) => a - b),
        seconds: (performance.now() - startMs) / 1000,
      });
    };
    step();
  });
}

/** The value that a share of sorted values does not exceed. */
export function quantile(sorted, share) {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
}
