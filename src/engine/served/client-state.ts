import type { HttpEndpoint } from "../../net/http.js";
import type { OneServersTraffic, ServerTraffic } from "../port.js";
import { createBreaker } from "./circuit-breaker.js";
import { createInFlightLimit } from "./in-flight-limit.js";
import type { EncodedRequest } from "./message.js";
import type { Pool, PooledServer } from "./pool.js";
import type { Protocol, RequestedVersion } from "./protocol.js";
import { type ModelServer, placeOf, serverText } from "./server.js";
import { countTraffic, type TrafficCounter } from "./traffic.js";

export interface ClientOptions {
  readonly protocol: Protocol;
  /** At least one; all have the same model. */
  readonly servers: readonly ModelServer[];
  readonly version: RequestedVersion;
  /** Whether servers had the model when an unfinished run was planned. */
  readonly isPlanned: boolean;
}

/** A server, and what this client knows about it. */
export interface Endpoint extends PooledServer {
  readonly server: ModelServer;
  readonly place: HttpEndpoint;
  readonly counter: TrafficCounter;
  /** Since when it has answered that it does not know the model. */
  unknownSinceMs?: number | undefined;
}

/** What the requests of a client share. */
export interface ClientState extends Pick<ClientOptions, "protocol" | "version" | "isPlanned"> {
  readonly endpoints: readonly Endpoint[];
  readonly pool: Pool<Endpoint>;
  /** The servers together, as messages name them. */
  readonly place: HttpEndpoint;
  readonly counter: TrafficCounter;
  /** A small request that a server answered. */
  control?: EncodedRequest;
  /** The version in the answers so far. */
  answered?: string | undefined;
}

export interface EndpointOptions {
  /** Whether there are other servers with the model. */
  readonly hasOthers: boolean;
  /** Whether the limit of requests in flight grows until the server is overloaded. Default: no. */
  readonly isEager?: boolean;
}

export function openEndpoint(server: ModelServer, { hasOthers, isEager }: EndpointOptions): Endpoint {
  const { retry, most } = server;
  const { nowMs, random } = retry;
  const breaker = createBreaker({
    nowMs,
    random,
    onChange: (isOpen, found) => {
      if (hasOthers) {
        retry.warn(isOpen ? `${server.url} is left out for now: ${found}` : `${server.url} answers again`);
      }
    },
  });
  const limit = createInFlightLimit({ most, nowMs, isEager });
  const place = placeOf(server, `scoring with ${serverText(server)}`);
  return { server, place, limit, breaker, counter: countTraffic(), pausedUntilMs: 0 };
}

/** What was sent, to all servers and to each. */
export function trafficOf({
  counter,
  pool,
  endpoints,
}: Pick<ClientState, "counter" | "pool" | "endpoints">): ServerTraffic {
  return {
    get requests() {
      return counter.requests;
    },
    get retries() {
      return counter.retries;
    },
    get inFlight() {
      return pool.highest;
    },
    latencyMs: (share) => counter.latencyMs(share),
    get servers() {
      return endpoints.length === 1 ? [] : endpoints.map(trafficOfOne);
    },
  };
}

function trafficOfOne({ server: { url }, counter, limit }: Endpoint): OneServersTraffic {
  const { requests, failures } = counter;
  return { url, requests, failures, inFlight: limit.highest, latencyMs: (share) => counter.latencyMs(share) };
}
