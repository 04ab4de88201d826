import { openStoreAt, type StorePlace, storeUrl } from "../objects/open.js";
import type { ObjectStore, RequestOptions } from "../objects/store.js";
import { parseObjectUri } from "../spec/object-uri.js";
import type { StoreOutputSpec } from "../spec/parquet-spec.js";
import type { StoreSpec } from "../spec/store-spec.js";

type PlaceSpec = StoreSpec & Pick<StoreOutputSpec, "sse">;

/** The store that a URI of a part of the spec is in. */
export interface PlaceInStore {
  readonly place: StorePlace;
  readonly requests: RequestOptions;
}

/** Returns how to reach the store that `uri` is in, as a part of the spec says. */
export function placeOf(uri: string, spec: PlaceSpec, { retry, signal }: StoreOptions): PlaceInStore {
  const { endpoint, region, path_style: pathStyle, request_payer: requestPayer, timeouts, sse: encryption } = spec;
  const { connect = 10, silence = 20, request = 300 } = timeouts ?? {};
  const settings = { endpoint, region, pathStyle, requestPayer, encryption };
  return {
    place: { scheme: parseObjectUri(uri).scheme, settings },
    requests: {
      timeouts: { connectMs: connect * 1000, silenceMs: silence * 1000, requestMs: request * 1000 },
      retry,
      signal,
    },
  };
}

type StoreOptions = Pick<RequestOptions, "retry" | "signal">;

/** Opens the store that `uri` is in. */
export async function openStore(uri: string, spec: PlaceSpec, options: StoreOptions): Promise<ObjectStore> {
  const { place, requests } = placeOf(uri, spec, options);
  return await openStoreAt(place, requests);
}

/** Identifies the store that `uri` is in: its URL; empty for the one of AWS, Google or Azure. */
export function urlOfStore(uri: string, { endpoint }: StoreSpec): string {
  return storeUrl({ scheme: parseObjectUri(uri).scheme, settings: { endpoint } });
}
