import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Ajv } from "ajv";
import { describe, expect, test } from "vitest";
import { parse, parseAllDocuments } from "yaml";
import { z } from "zod";
import { deployText, finalCodes } from "../support/deploy.js";
import { jobOf } from "../support/pod.js";
import { torture } from "../support/torture.js";

const modules = {
  argo: { module: "github.com/argoproj/argo-workflows/v4@v4.0.5", crds: "manifests/base/crds/full/argoproj.io_" },
  kueue: { module: "sigs.k8s.io/kueue@v0.17.0", crds: "config/components/crd/bases/kueue.x-k8s.io_" },
} as const;

const definition = z.object({
  spec: z.object({
    versions: z.array(z.object({ name: z.string(), schema: z.object({ openAPIV3Schema: z.looseObject({}) }) })),
  }),
});

interface Resource {
  readonly apiVersion: string;
  readonly kind: string;
}

/** As `kubectl apply` does, refuses keys that the schema does not know. */
function strict(schema: unknown): unknown {
  if (Array.isArray(schema)) {
    return schema.map(strict);
  }
  if (typeof schema !== "object" || schema === null) {
    return schema;
  }
  const inner = Object.fromEntries(Object.entries(schema).map(([key, value]) => [key, strict(value)]));
  const isOpen = "additionalProperties" in inner || inner["x-kubernetes-preserve-unknown-fields"] === true;
  return typeof inner["properties"] === "object" && !isOpen ? { ...inner, additionalProperties: false } : inner;
}

function faultsOf(name: keyof typeof modules, { apiVersion, kind, ...rest }: Resource): unknown[] {
  const { module, crds } = modules[name];
  const { stdout } = spawnSync("go", ["mod", "download", "-json", module], { encoding: "utf8" });
  const { Dir: folder } = z.object({ Dir: z.string() }).parse(JSON.parse(stdout));
  const crd = definition.parse(parse(readFileSync(join(folder, `${crds}${kind.toLowerCase()}s.yaml`), "utf8")));
  const version = crd.spec.versions.find((candidate) => candidate.name === apiVersion.split("/")[1]);
  const ajv = new Ajv({ strict: false, validateFormats: false, allErrors: true });
  const validate = ajv.compile(strict(version?.schema.openAPIV3Schema ?? false) as object);
  validate({ apiVersion, kind, ...rest });
  return (validate.errors ?? []).map(({ instancePath, message, params }) => [instancePath, message, params]);
}

function resources(path: string): Resource[] {
  return parseAllDocuments(deployText(path)).map((document) => document.toJS() as Resource);
}

const workflow = "argo/cronworkflow.yaml";
const queues = "kubernetes/overlays/kueue/queues.yaml";
const missing = torture
  ? spawnSync("go", ["version"]).status === 0
    ? undefined
    : "no Go"
  : "long form: INFER_BATCH_TORTURE=1";

describe("the resources of Argo Workflows and Kueue", () => {
  test.skipIf(missing !== undefined)(
    `keep to the schemas of these${missing === undefined ? "" : ` (skipped: ${missing})`}`,
    () => {
      expect(resources(workflow).map((resource) => faultsOf("argo", resource))).toEqual([[]]);
      expect(resources(queues).map((resource) => faultsOf("kueue", resource))).toEqual([[], [], []]);
      const [wrong] = JSON.parse(JSON.stringify(resources(workflow)).replace('"limit":', '"limits":')) as Resource[];
      expect(wrong && faultsOf("argo", wrong)).toEqual([
        [expect.stringMatching(/retryStrategy$/), expect.any(String), { additionalProperty: "limits" }],
      ]);
    },
    120_000,
  );

  test("the workflow gives up at each final code, for as many workers as it starts", () => {
    const text = deployText(workflow);
    expect(text).toContain(`asInt(lastRetry.exitCode) not in [${finalCodes.join(", ")}]`);
    expect(/count: "(\d+)"/.exec(text)?.[1]).toBe(/\{\{item\}\}\/(\d+)"/.exec(text)?.[1]);
  });

  test("the queue has room for the pods of a run, and covers all that they ask for", () => {
    const quota = z.object({ name: z.string(), nominalQuota: z.string() });
    const flavors = z.tuple([z.object({ resources: z.array(quota) })]);
    const group = z.object({ coveredResources: z.array(z.string()), flavors });
    const { spec } = z
      .object({ spec: z.object({ resourceGroups: z.tuple([group]) }) })
      .parse(resources(queues).find(({ kind }) => kind === "ClusterQueue"));
    const [
      {
        coveredResources,
        flavors: [flavor],
      },
    ] = spec.resourceGroups;
    const { job, container } = jobOf("overlays/kueue");
    const needed = Object.entries(container.resources.limits).map(([name, amount]) => {
      const [, number, unit] = /^(\d+)(\D*)$/.exec(amount) ?? [];
      return { name, nominalQuota: `${Number(number) * job.completions}${unit}` };
    });
    expect(flavor.resources).toEqual(needed);
    expect(coveredResources).toEqual(needed.map(({ name }) => name));
  });
});
