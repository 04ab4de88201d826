// The Batch API of the mock server: files, batches, and what goes wrong with them. Its options are `batch` of options.mjs.
import { addFile, seconds, validate } from "./batch-work.mjs";
import { errors } from "./errors.mjs";

export const noBatchFaults = {
  /** The server has no Batch API. */
  absent: false,
  /** How long a batch is checked, and how long it takes. */
  validateMs: 0,
  runMs: 0,
  /** Batches that run end now. */
  finish: false,
  /** Requests in the queue, at most: a batch that would exceed them fails. */
  queue: Number.POSITIVE_INFINITY,
  /** Codes that the first batches fail with. */
  failing: [],
  /** How the first batches end, each with half of its answers: expired, cancelled. */
  ending: [],
  /** Each so many calls are refused: with 429, 500 and 503 in turn. 0: none is */
  refuseEvery: 0,
  /** The first downloads break off in the middle. */
  cutDownloads: 0,
  /** The first batches are created without an answer. */
  loseCreates: 0,
  /** Items of a page of a list; the last one comes again on the next page. 0: all are on one page */
  pageItems: 0,
  /** Batches keep no metadata. */
  forgetful: false,
  /** Input files cannot be read. */
  secretive: false,
  /** A call that gets no answer: { at, nth }. at: upload, uploaded, create, created, poll, output, errors. */
  hold: undefined,
};

/** @param tools what the rest of the server has: options(), books, count, sent, answered, send(response, status, body) */
export function createBatches({ options, books, count, sent, answered, send }) {
  const files = new Map();
  const batches = new Map();
  const done = { calls: 0, failed: 0, ended: 0, cut: 0, lost: 0 };
  const seen = new Map();
  let held;
  const state = { options, books, count, sent, answered, files, batches, done, running: [] };
  let heldResponse;
  const isHeld = (at, response) => {
    const { hold } = options().batch;
    seen.set(at, (seen.get(at) ?? 0) + 1);
    if (hold === undefined || hold.at !== at || (hold.nth ?? 1) !== seen.get(at)) {
      return false;
    }
    held = at;
    heldResponse = response;
    return true;
  };
  return {
    totals: () => ({
      held: held ?? null,
      calls: done.calls,
      files: [...files.values()].filter(({ purpose }) => purpose === "batch").length,
      created: batches.size,
      statuses: [...batches.values()].map(({ status }) => status),
      requests: [...batches.values()].map(({ request_counts: { total } }) => total),
    }),
    /** Begins to count calls for `hold` again, and ends batches. */
    changed() {
      heldResponse?.destroy();
      heldResponse = undefined;
      held = undefined;
      seen.clear();
      if (options().batch.finish) {
        for (const end of state.running.splice(0)) {
          end();
        }
      }
    },
    /** Handles a call. Returns false if it is none of the Batch API. */
    handle({ method, url, headers }, response, bytes) {
      const { pathname: path, searchParams: query } = new URL(url, "http://mock");
      const [, kind, id, more] = /^\/v1\/(files|batches)(?:\/([^/]+))?(?:\/([^/]+))?$/.exec(path) ?? [];
      const { batch } = options();
      if (kind === undefined || batch.absent) {
        return false;
      }
      done.calls += 1;
      if (batch.refuseEvery > 0 && done.calls % batch.refuseEvery === 0) {
        refuse(send, response, done.calls / batch.refuseEvery);
        return true;
      }
      const call = { state, isHeld: (at) => isHeld(at, response), response, send, bytes, headers, id, query };
      const route = routes[`${method} ${kind}${id === undefined ? "" : "/id"}${more === undefined ? "" : `/${more}`}`];
      if (route === undefined) {
        return false;
      }
      route(call);
      return true;
    },
  };
}

function refuse(send, response, nth) {
  const wait = { kind: "requests", limit: 500, seconds: 0.01 };
  const { status, body } = [errors.limited("mock-1", wait), errors.failed(), errors.overloaded()][nth % 3];
  send(response, status, body, status === 429 ? { "retry-after": "1", "retry-after-ms": "10" } : {});
}

const routes = {
  "GET files": (call) =>
    list(
      call,
      [...call.state.files.values()].filter(({ purpose }) => purpose === "batch"),
    ),
  "GET batches": (call) => list(call, [...call.state.batches.values()]),
  "POST files": upload,
  "POST batches": create,
  "GET batches/id": ({ isHeld, ...call }) => {
    if (!isHeld("poll")) {
      answerWith(call, call.state.batches.get(call.id));
    }
  },
  "POST batches/id/cancel": (call) => answerWith(call, call.state.batches.get(call.id)),
  "GET files/id/content": download,
};

function answerWith({ send, response }, item) {
  if (item === undefined) {
    send(response, 404, {
      error: { message: "No such object", type: "invalid_request_error", param: "id", code: null },
    });
    return;
  }
  const { bytes: _bytes, worked: _worked, ...shown } = item;
  send(response, 200, item.object === "file" ? { ...shown, bytes: item.bytes.length } : shown);
}

/** A page of a list, newest first. */
function list({ state, send, response, query }, items) {
  const { pageItems } = state.options().batch;
  const newest = items.toReversed();
  const most = pageItems === 0 ? newest.length : pageItems;
  const after = newest.findIndex(({ id }) => id === query.get("after"));
  const start = after < 0 ? 0 : pageItems > 1 ? after : after + 1; // the last item of the page before, again
  const page = newest.slice(start, start + most);
  const data = page.map(({ bytes: _bytes, worked: _worked, ...shown }) => shown);
  send(response, 200, {
    object: "list",
    data,
    first_id: data[0]?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
    has_more: start + most < newest.length,
  });
}

function upload({ state, isHeld, send, response, bytes, headers }) {
  if (isHeld("upload")) {
    return;
  }
  const [, boundary] = /boundary=(.+)$/.exec(headers["content-type"] ?? "") ?? [];
  const parts = bytes
    .toString("latin1")
    .split(`--${boundary}`)
    .slice(1, -1)
    .map((part) => {
      const end = part.indexOf("\r\n\r\n");
      const [, name] = /name="([^"]+)"/.exec(part) ?? [];
      const [, filename] = /filename="([^"]+)"/.exec(part) ?? [];
      return { name, filename, body: Buffer.from(part.slice(end + 4, -2), "latin1") };
    });
  const purpose = parts.find(({ name }) => name === "purpose")?.body.toString();
  const { filename, body } = parts.find(({ name }) => name === "file") ?? {};
  const file = addFile(state, { purpose, filename, bytes: body });
  if (!isHeld("uploaded")) {
    answerWith({ send, response }, file);
  }
}

function create({ state, isHeld, send, response, bytes }) {
  if (isHeld("create")) {
    return;
  }
  const { input_file_id: input, endpoint, completion_window: window, metadata } = JSON.parse(bytes);
  const { batch: faults } = state.options();
  if (window !== "24h" || !["/v1/chat/completions", "/v1/embeddings"].includes(endpoint) || !state.files.has(input)) {
    send(response, 400, {
      error: { message: "Invalid batch", type: "invalid_request_error", param: null, code: null },
    });
    return;
  }
  const id = `batch_${state.batches.size + 1}`;
  const lines = linesOf(state.files.get(input).bytes);
  const batch = {
    id,
    object: "batch",
    endpoint,
    errors: null,
    input_file_id: input,
    completion_window: window,
    status: "validating",
    output_file_id: null,
    error_file_id: null,
    created_at: seconds(),
    expires_at: seconds() + 86_400,
    request_counts: { total: lines.length, completed: 0, failed: 0 },
    metadata: faults.forgetful ? null : (metadata ?? null),
  };
  state.batches.set(id, batch);
  setTimeout(() => validate(state, batch, lines), faults.validateMs);
  if (state.done.lost < faults.loseCreates) {
    state.done.lost += 1;
    response.destroy();
  } else if (!isHeld("created")) {
    answerWith({ send, response }, batch);
  }
}

function linesOf(bytes) {
  return bytes
    .toString("utf8")
    .split("\n")
    .filter((line) => line !== "");
}

function download({ state, isHeld, send, response, id }) {
  const { batch: faults } = state.options();
  const file = state.files.get(id);
  if (file === undefined || (file.purpose === "batch" && faults.secretive)) {
    send(response, 404, { error: { message: "No such file", type: "invalid_request_error", param: "id", code: null } });
    return;
  }
  const { bytes } = file;
  response.writeHead(200, { "content-type": "application/octet-stream", "content-length": bytes.length });
  const isOutput = [...state.batches.values()].some(({ output_file_id: output }) => output === id);
  const isResult = file.purpose === "batch_output";
  if (isResult && isHeld(isOutput ? "output" : "errors")) {
    response.write(bytes.subarray(0, Math.floor(bytes.length / 2)));
    return;
  }
  if (isResult && state.done.cut < faults.cutDownloads) {
    state.done.cut += 1;
    response.write(bytes.subarray(0, Math.floor(bytes.length / 2)), () => response.destroy());
    return;
  }
  response.end(bytes);
}
