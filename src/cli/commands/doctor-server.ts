import { dirname, resolve } from "node:path";
import { attemptServices } from "../../app/attempt-services.js";
import { diagnoseServers } from "../../app/models/served-model.js";
import { diagnosePrompted } from "../../app/models/prompted-model.js";
import { programVersion } from "../../app/version.js";
import { serverDiagnosisJson, serverDiagnosisText } from "../../report/server-diagnosis.js";
import type { LoadedSpec } from "../../spec/load.js";
import type { ServerSpec } from "../../spec/server-spec.js";
import type { SafeIo } from "../io.js";
import { createWarningLog } from "../logger.js";

export interface DoctorServerOptions {
  readonly specPath: string;
  readonly json: boolean;
}

/**
 * Shows whether the servers of a spec answer, what they say about the model, and how fast they score blank rows.
 * @throws JobError that a run would end with
 */
export async function doctorServer(
  server: ServerSpec,
  { spec, where }: LoadedSpec,
  { specPath, json }: DoctorServerOptions,
  io: SafeIo,
): Promise<void> {
  const services = attemptServices(spec, createWarningLog(io.stderr), new AbortController().signal);
  const options = { ...services, folder: dirname(resolve(specPath)), where };
  const { error, ...found } =
    server.protocol === "openai"
      ? await diagnosePrompted({ ...spec.model, server }, options)
      : await diagnoseServers(server, options);
  const diagnosis = { program: programVersion, protocol: server.protocol, ...found };
  io.stdout.write(json ? `${serverDiagnosisJson(diagnosis)}\n` : serverDiagnosisText(diagnosis));
  if (error !== undefined) {
    throw error;
  }
}
