import { z } from "../../util/zod.js";

/** The body of a request: JSON in which a text `{{NAME}}` stands for values of the batch. */
export type RequestTemplate = Readonly<Record<string, unknown>>;

/** Names of layouts that contain all inputs. */
const layouts = ["instances", "records", "inputs", "dataframe_split"] as const;
const error = `expected instances, inputs, dataframe_split, or a mapping such as { input_data: "{{instances}}" }`;

/** A layout by its name, or a template. */
export const requestForm = z.union(
  [z.enum(["instances", "inputs", "dataframe_split"]), z.record(z.string(), z.unknown())],
  { error },
);

/** The template that a form of requests stands for. */
export function templateOf(form: string | RequestTemplate): RequestTemplate {
  return typeof form === "string" ? { [form]: `{{${form}}}` } : form;
}

/** What is wrong with a template; undefined: nothing. @param inputs names of the model's inputs */
export function templateProblem(template: RequestTemplate, inputs: readonly string[]): string | undefined {
  const known: readonly string[] = [...layouts, ...inputs];
  const { names, isKey } = placeholdersIn(template);
  const unknown = names.find((name) => !known.includes(name));
  if (isKey) {
    return "expected placeholders as values, not as keys";
  }
  if (unknown !== undefined) {
    return `\`{{${unknown}}}\` is no placeholder; they are ${known.map((name) => `{{${name}}}`).join(", ")}`;
  }
  return names.length === 0 ? `expected a placeholder in it, such as "{{instances}}"` : undefined;
}

function placeholdersIn(value: unknown): { readonly names: readonly string[]; readonly isKey: boolean } {
  const texts: string[] = [];
  let isKey = false;
  // Visits each value; a placeholder is a text of its own.
  JSON.stringify(value, (key, one: unknown) => {
    isKey ||= /^\{\{.*\}\}$/.test(key);
    if (typeof one === "string") {
      texts.push(one);
    }
    return one;
  });
  const names = texts.flatMap((text) => /^\{\{([^{}"\\]+)\}\}$/.exec(text)?.[1] ?? []);
  return { names, isKey };
}
