import { spawnSync } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { parseAllDocuments } from "yaml";
import { expectEnd, projectFolder, runCli, runHere } from "../support/cli.js";
import { eighthsJob } from "../support/faulty.js";
import { scratch } from "../support/job.js";
import { startServing } from "../support/serve.js";
import { validators } from "../support/validators.js";

const file = join(projectFolder, "deploy/kubernetes/serve/serve.yaml");

interface Served {
  readonly kind: string;
  readonly spec: {
    readonly template: {
      readonly spec: {
        readonly containers: readonly {
          readonly args: readonly string[];
          readonly readinessProbe: { readonly httpGet: { readonly path: string } };
          readonly livenessProbe: { readonly httpGet: { readonly path: string } };
        }[];
      };
    };
    readonly metrics: readonly { readonly pods: { readonly metric: { readonly name: string } } }[];
  };
}

async function manifests(): Promise<Served[]> {
  return parseAllDocuments(await readFile(file, "utf8"), { merge: true }).map((one) => one.toJS() as Served);
}

test.skipIf(validators.missing !== undefined)(
  `the manifests of a server keep to Kubernetes' schema${validators.skipped}`,
  async () => {
    const files: string[] = [];
    for (const manifest of await manifests()) {
      files.push(`${manifest.kind}.json`);
      await writeFile(join(scratch.path, `${manifest.kind}.json`), JSON.stringify(manifest));
    }
    const { status, stdout, stderr } = spawnSync(join(validators.bin, "kubernetes-validate"), ["--strict", ...files], {
      cwd: scratch.path,
      encoding: "utf8",
    });
    expect(status, `${stdout}${stderr}`).toBe(0);
    expect(files).toEqual(["Deployment.json", "Service.json", "HorizontalPodAutoscaler.json"]);
  },
);

test("probes and the autoscaler ask for what a server has; its token comes from a file", async () => {
  const [deployment, , scaler] = await manifests();
  const [container] = deployment?.spec.template.spec.containers ?? [];
  await writeFile(join(scratch.path, "token"), "open-sesame\n");
  const spec = await eighthsJob(10, { serve: { port: 0, token: `\${file:${join(scratch.path, "token")}}` } });
  await expectEnd(runHere(["run", spec]), 0);
  expect(container?.args[0]).toBe("serve");
  const server = await startServing(spec);
  for (const probe of [container?.readinessProbe, container?.livenessProbe]) {
    expect((await server.get(probe?.httpGet.path ?? "")).status).toBe(200);
  }
  const body = { rows: [{ id: 1, x: 2 }] };
  const bearer = { authorization: "Bearer open-sesame" };
  const metrics = await (await server.get("/metrics", bearer)).text();
  expect(metrics).toContain(`${scaler?.spec.metrics[0]?.pods.metric.name}{`);
  for (const [headers, status] of [
    [{}, 401],
    [{ authorization: "Bearer open" }, 401],
    [bearer, 200],
  ] as const) {
    expect((await server.post("/predict", body, headers)).status).toBe(status);
  }
  expect((await server.get("/metrics")).status).toBe(401);
  expect(server.stderr()).not.toContain("sesame");
  const open = await eighthsJob(10, { serve: { port: 0, token: "${SERVE_TOKEN}" } });
  await expectEnd(runCli(["serve", open], { env: { SERVE_TOKEN: "" } }), 64, /serve\.token: it is empty/);
});
