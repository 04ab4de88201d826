import { type CommandAnswer } from "../flags.js";
import { count, showCount, rounded } from "../../base/shown-numbers.js";
import { dirname, resolve } from "node:path";
import { attemptServices, programVersion } from "../../job/attempt.js";
import { diagnoseServers, type MeasuredServer, type ServerDiagnosis } from "../../job/served-models.js";
import { showTensor } from "../../models/binding/signatures.js";
import type { ModelSignature } from "../../columns/tensor.js";
import { table } from "../../report/table.js";
import type { LoadedSpec } from "../../job/jobfile/load.js";
import type { ServerSpec } from "../../job/jobfile/server-spec.js";
import type { SafeIo } from "../io.js";
import { createWarningLog } from "../logger.js";

/** Also scores blank rows. Ends with the JobError that a run would end with. */
export async function doctorServer(
  server: ServerSpec,
  { spec, where }: LoadedSpec,
  specPath: string,
  io: SafeIo,
): Promise<CommandAnswer> {
  const services = attemptServices(spec, createWarningLog(io.stderr), new AbortController().signal);
  const options = { ...services, folder: dirname(resolve(specPath)), where };
  const { error, ...answers } = await diagnoseServers({ ...spec.model, server }, options);
  const diagnosis = { program: programVersion, protocol: server.protocol, ...answers };
  return { json: () => serverDiagnosisJson(diagnosis), text: () => serverDiagnosisText(diagnosis), error };
}

function serverDiagnosisJson({ program, signature, measured, ...rest }: ServerDiagnosis): object {
  const batches = measured?.batches.map(({ rows, ms, rowsPerSecond }) => {
    return { rows, ms: rounded(ms, 1), rows_per_second: Math.round(rowsPerSecond) };
  });
  const inFlight = measured?.inFlight.map(({ inFlight: requests, rowsPerSecond }) => {
    return { in_flight: requests, batch_size: measured.bestRows, rows_per_second: Math.round(rowsPerSecond) };
  });
  const stopped = measured?.stopped ?? null;
  const counted = measured?.counted;
  return {
    version: program,
    ...rest,
    signature: signature ?? null,
    batches: batches ?? [],
    batches_stopped: stopped,
    requests: inFlight ?? [],
    server_statistics:
      counted === undefined
        ? null
        : {
            queue_ms: rounded(counted.queueMs, 1),
            compute_ms: rounded(counted.computeMs, 1),
            requests_joined: rounded(counted.requestsJoined, 1),
          },
  };
}

function serverDiagnosisText(diagnosis: ServerDiagnosis): string[] {
  const { program, model, protocol, servers, signature, measured } = diagnosis;
  const tensors = signature === undefined ? [] : signatureLines(signature);
  const ready = servers.filter(({ state }) => state === "ready");
  return [
    `${ready.length} of ${count(servers.length, "server")} ready.`,
    "",
    `infer-batch ${program}`,
    `model ${model}, protocol ${protocol}`,
    "",
    ...table(servers.map(({ url, state, found }) => [url, state, found])),
    ...tensors,
    ...(measured === undefined ? [] : measuredLines(measured)),
  ];
}

function signatureLines({ inputs, outputs }: ModelSignature): string[] {
  const rows = [
    ...inputs.map((tensor) => ["input", tensor.name, showTensor(tensor)]),
    ...outputs.map((tensor) => ["output", tensor.name, showTensor(tensor)]),
  ];
  return ["", ...table(rows)];
}

function measuredLines({ batches, stopped, bestRows, inFlight, counted }: MeasuredServer): string[] {
  const right = { right: [0, 1, 2] };
  const curve = batches.map(({ rows, ms, rowsPerSecond }) => [
    String(rows),
    String(rounded(ms, 1)),
    showCount(Math.round(rowsPerSecond)),
  ]);
  const rates = inFlight.map(({ inFlight: requests, rowsPerSecond }) => [
    String(requests),
    showCount(Math.round(rowsPerSecond)),
  ]);
  return [
    "",
    "blank rows, one request at a time:",
    ...table([["rows", "ms", "rows/s"], ...curve], right),
    ...(stopped === undefined ? [] : [`  no more rows: ${stopped}`]),
    ...(rates.length === 0 ? [] : ["", `requests of ${bestRows} blank rows at once:`]),
    ...(rates.length === 0 ? [] : table([["in flight", "rows/s"], ...rates], right)),
    ...(counted === undefined ? [] : ["", countedLine(counted)]),
  ];
}

function countedLine({ queueMs, computeMs, requestsJoined }: NonNullable<MeasuredServer["counted"]>): string {
  return `the server's own statistics: a request waits ${rounded(queueMs, 1)} ms and is computed in ${rounded(computeMs, 1)} ms; an execution has ${rounded(requestsJoined, 1)} requests`;
}
