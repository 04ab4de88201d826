import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Ajv2020 } from "ajv/dist/2020.js";
import { projectFolder } from "./cli.js";

const folder = join(projectFolder, "test", "vendor", "openlineage");
const eventSchema = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent";

const ajv = new Ajv2020({
  allErrors: true,
  strict: false, // the schemas have keywords of their own, such as `example`
  formats: {
    "date-time": /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/,
    uri: /^[a-z][a-z\d+.-]*:\S+$/i,
    uuid: /^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/i,
  },
});
for (const name of readdirSync(folder).filter((each) => each.endsWith(".json"))) {
  ajv.addSchema(JSON.parse(readFileSync(join(folder, name), "utf8")) as object);
}

/** Checks a value against the schema of a URL such as `https://openlineage.io/spec/…#/$defs/…`. @throws for a misfit */
function checkAgainst(schemaUrl: string, value: unknown): void {
  const validate = ajv.getSchema(schemaUrl);
  if (validate === undefined) {
    throw new Error(`no schema for ${schemaUrl}`);
  }
  if (validate(value) !== true) {
    throw new Error(`${schemaUrl}: ${ajv.errorsText(validate.errors)}`);
  }
}

type Facets = Readonly<Record<string, { readonly _schemaURL: string }>>;

/** An event as OpenLineage's specification has it, as far as tests read it. */
export interface Event {
  readonly eventType: string;
  readonly run: { readonly runId: string; readonly facets: Facets };
  readonly job: { readonly namespace: string; readonly name: string; readonly facets: Facets };
  readonly inputs: readonly { readonly facets: Facets; readonly inputFacets: Facets }[];
  readonly outputs: readonly { readonly facets: Facets; readonly outputFacets: Facets }[];
}

/** A facet that must be there. */
export function facetOf(facets: Facets | undefined, name: string): Readonly<Record<string, unknown>> {
  const facet = facets?.[name];
  if (facet === undefined) {
    throw new Error(`no facet ${name}`);
  }
  return { ...facet };
}

/** Returns an event, as it is sent, if it and each of its facets fits the JSON Schema that it names. @throws for any other */
export function parseEvent(json: unknown): Event {
  const event = JSON.parse(JSON.stringify(json)) as Event;
  checkAgainst(eventSchema, event);
  const facets = [
    event.run.facets,
    event.job.facets,
    ...event.inputs.flatMap((dataset) => [dataset.facets, dataset.inputFacets]),
    ...event.outputs.flatMap((dataset) => [dataset.facets, dataset.outputFacets]),
  ].flatMap((all) => Object.values(all));
  for (const facet of facets) {
    const { _schemaURL: schemaUrl } = facet;
    checkAgainst(schemaUrl, facet);
  }
  return event;
}
