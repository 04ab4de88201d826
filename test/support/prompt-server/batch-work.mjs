// How the mock server works off a batch: it checks it, answers its requests, and bills them.
import { hashOf } from "./books.mjs";
import { errors } from "./errors.mjs";
import { fateOf } from "./fates.mjs";
import { read } from "./requests.mjs";

export function addFile({ files }, { purpose, filename, bytes }) {
  const id = `file-${files.size + 1}`;
  const file = { id, object: "file", purpose, filename, created_at: seconds(), bytes, status: "processed" };
  files.set(id, file);
  return file;
}

export const seconds = () => Math.floor(Date.now() / 1000);

export function validate(state, batch, lines) {
  const { batch: faults } = state.options();
  const queued = [...state.batches.values()]
    .filter(({ status }) => status === "in_progress")
    .reduce((sum, { request_counts: { total } }) => sum + total, lines.length);
  const code = faults.failing[state.done.failed] ?? (queued > faults.queue ? "token_limit_exceeded" : undefined);
  if (code !== undefined) {
    state.done.failed += 1;
    const message = `Enqueued or invalid: ${code}`;
    batch.status = "failed";
    batch.errors = { object: "list", data: [{ code, message, param: null, line: null }] };
    return;
  }
  batch.status = "in_progress";
  state.running.push(() => work(state, batch, lines));
  setTimeout(() => work(state, batch, lines), faults.runMs).unref();
}

/** Answers the requests of a batch. Those of one that does not end well are answered by halves. */
function work(state, batch, lines) {
  if (batch.status !== "in_progress") {
    return;
  }
  const { batch: faults } = state.options();
  const ending = faults.ending[state.done.ended];
  state.done.ended += 1;
  const results = { output: [], errors: [] };
  const most = ending === undefined ? lines.length : Math.floor(lines.length / 2);
  // The order of answers is not that of requests.
  for (const [index, line] of lines.toReversed().entries()) {
    const { custom_id: id, body, url } = JSON.parse(line);
    if (index >= most) {
      const error = { code: `batch_${ending}`, message: "This request could not be executed before the batch ended." };
      results.errors.push({ id: `batch_req_${index}`, custom_id: id, response: null, error });
      continue;
    }
    const { status, body: answer } = answerTo(state, url, Buffer.from(JSON.stringify(body)));
    const result = {
      id: `batch_req_${index}`,
      custom_id: id,
      response: { status_code: status, request_id: `req_${index}`, body: answer },
      error: null,
    };
    results[status === 200 ? "output" : "errors"].push(result);
  }
  batch.request_counts = { total: lines.length, completed: results.output.length, failed: results.errors.length };
  batch.output_file_id = fileOf(state, results.output);
  batch.error_file_id = fileOf(state, results.errors);
  batch.status = ending ?? "completed";
}

function fileOf(state, results) {
  if (results.length === 0) {
    return null;
  }
  const bytes = Buffer.from(results.map((result) => `${JSON.stringify(result)}\n`).join(""));
  return addFile(state, { purpose: "batch_output", filename: "output.jsonl", bytes }).id;
}

/** Answers one request, and bills it. */
function answerTo({ options, books, count, sent, answered }, path, bytes) {
  const { error, prompt, answer } = read(options(), count, path, bytes);
  if (error !== undefined) {
    return error;
  }
  if (options().quota !== undefined && books.totals().billed.cost >= options().quota) {
    return errors.quota();
  }
  if (prompt.includes("CRASH")) {
    return errors.failed();
  }
  const nth = sent.get(prompt) ?? 0;
  sent.set(prompt, nth + 1);
  const fate = fateOf(options(), prompt, nth);
  if (fate === "limited" || fate === "limitedSilently") {
    return errors.limited("mock-1", { kind: "requests", limit: 500, seconds: 0.02 });
  }
  if (fate === "failed" || fate === "overloaded") {
    return errors[fate]();
  }
  const first = !answered.has(prompt);
  answered.set(prompt, true);
  const { usage, body } = answer(options().answersAs, first);
  books.bill(hashOf(bytes), usage, "whole");
  return { status: 200, body };
}
