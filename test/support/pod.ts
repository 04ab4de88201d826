import { join } from "node:path";
import { z } from "zod";
import { deployFolder } from "./deploy.js";
import { kustomized } from "./kustomize.js";

export const manifests = join(deployFolder, "kubernetes");
export const manifestFolders = [
  "base",
  "overlays/cloud-identity",
  "overlays/gpu",
  "overlays/kueue",
  "overlays/postgres",
  "overlays/web-identity",
] as const;
export type ManifestFolder = (typeof manifestFolders)[number];

const exitRule = z.object({ action: z.string(), onExitCodes: z.object({ values: z.array(z.int()) }).optional() });
const cronJob = z.object({
  spec: z.object({
    timeZone: z.string(),
    jobTemplate: z.object({
      spec: z.object({
        backoffLimitPerIndex: z.int(),
        completions: z.int(),
        parallelism: z.int(),
        podFailurePolicy: z.object({ rules: z.array(exitRule) }),
        template: z.object({
          spec: z.object({
            serviceAccountName: z.string().optional(),
            containers: z.tuple([
              z.object({
                envFrom: z.array(z.unknown()).optional(),
                image: z.string(),
                command: z.tuple([z.string()], z.string()),
                args: z.tuple([z.string()]),
                env: z.array(z.object({ name: z.string(), value: z.string().optional() })),
                resources: z.object({ limits: z.record(z.string(), z.string()) }),
              }),
            ]),
          }),
        }),
      }),
    }),
  }),
});

const configMap = z.object({ data: z.object({ "job.yaml": z.string() }) });

/** The CronJob that a folder comes to, and the job's spec beside it; `within`: a copy of deploy/kubernetes. */
export function jobOf(
  path: ManifestFolder,
  within = manifests,
): {
  job: z.infer<typeof cronJob>["spec"]["jobTemplate"]["spec"];
  container: z.infer<typeof cronJob>["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0];
  env: Record<string, string>;
  timeZone: string;
  jobSpec: string;
} {
  const made = kustomized(join(within, path));
  const { spec } = cronJob.parse(made.find(({ kind }) => kind === "CronJob"));
  const { data } = configMap.parse(made.find(({ kind }) => kind === "ConfigMap"));
  const job = spec.jobTemplate.spec;
  const [container] = job.template.spec.containers;
  const env = Object.fromEntries(container.env.map(({ name, value = "" }) => [name, value]));
  return { job, container, env, timeZone: spec.timeZone, jobSpec: data["job.yaml"] };
}
