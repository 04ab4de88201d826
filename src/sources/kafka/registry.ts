import { JobError, messageOf } from "../../base/errors.js";
import { type HttpAnswer, type HttpEndpoint, readOwnJson } from "../../base/http/http.js";
import { jsonText } from "../../base/texts.js";
import { z } from "../../base/zod.js";

/*
 * Values whose schemas are in a registry begin with a zero byte and the id of their schema:
 * https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
 */

export interface RegistryOptions extends Pick<HttpEndpoint, "retry" | "signal" | "findProxy" | "headers"> {
  readonly url: string;
  readonly names: readonly string[];
  /** Opens a reader of records of an Avro schema, which throws RangeError for other bytes. */
  readonly openAvro: (schema: string) => (bytes: Buffer) => Record<string, unknown>;
  /** The name that a field has in such records. */
  readonly avroName: (field: string) => string;
}

/** Makes JSON of values. */
export interface ValueReader {
  /** The JSON of a value, or what is wrong with it. @throws UnknownSchema */
  json(value: Buffer): Buffer | string;
  /** Asks for a schema. @throws JobError PERMISSION, NETWORK */
  load(id: number): Promise<void>;
}

/** A schema that must be loaded before a value of it is read. */
export class UnknownSchema extends Error {
  readonly id: number;
  constructor(id: number) {
    super(`schema ${id} is not loaded yet`);
    this.id = id;
  }
}

const headBytes = 5;
/** Schemas that are kept: a topic has few, and a damaged one may name any. */
const mostReaders = 256;
/** Letters of what is wrong with a schema, which may quote all of it. */
const mostFound = 200;
const answer = z.object({
  schema: z.string(),
  schemaType: z.string().default("AVRO"),
  references: z.array(z.unknown()).default([]),
});

type ReadValue = (value: Buffer) => Buffer | string;

/** Opens a registry; nothing is asked before a value needs its schema. */
export function openRegistry({ url, names, openAvro, avroName, ...place }: RegistryOptions): ValueReader {
  const readers = new Map<number, ReadValue>();
  const fieldsOfRecords = names.map((name) => [name, avroName(name)] as const);
  const doing = "asking the registry of schemas";
  const refused = ({ status, said }: HttpAnswer): JobError => {
    const code = status === 404 ? "FILE_MISSING" : status === 401 || status === 403 ? "PERMISSION" : "NETWORK";
    return new JobError(code, `${doing}: HTTP ${status}: ${said}`, { hint: "correct input.kafka.registry" });
  };
  const hint = "see whether the registry of input.kafka.registry can be reached from here, and run again";

  const readerOf = async (id: number): Promise<ReadValue> => {
    const wrong = (found: string): ReadValue => {
      const text = `its schema ${id} ${found}`.slice(0, mostFound); // each row of the schema has it
      return () => text;
    };
    try {
      const at = `${url.replace(/\/+$/, "")}/schemas/ids/${id}`;
      const { schema, schemaType, references } = answer.parse(
        await readOwnJson(at, { ...place, doing, refused, hint }),
      );
      if (schemaType === "JSON") {
        return (value) => value;
      }
      return schemaType !== "AVRO" || references.length > 0
        ? wrong(schemaType === "AVRO" ? "refers to others, which is not read" : `is ${schemaType}, which is not read`)
        : avroReader(schema, fieldsOfRecords, openAvro(schema));
    } catch (error) {
      if (error instanceof JobError && error.code !== "FILE_MISSING") {
        throw error;
      }
      return wrong(error instanceof JobError ? "is not in the registry" : `cannot be used: ${messageOf(error)}`);
    }
  };

  return {
    json(value) {
      if (value.length < headBytes || value[0] !== 0) {
        return "it does not begin with the id of a schema";
      }
      const id = value.readInt32BE(1);
      const reader = readers.get(id);
      if (reader === undefined) {
        throw new UnknownSchema(id);
      }
      return reader(value.subarray(headBytes));
    },
    async load(id) {
      const [oldest] = readers.keys();
      if (oldest !== undefined && readers.size >= mostReaders) {
        readers.delete(oldest);
      }
      readers.set(id, await readerOf(id));
    },
  };
}

function avroReader(
  schema: string,
  wanted: readonly (readonly [name: string, key: string])[],
  read: (bytes: Buffer) => Record<string, unknown>,
): ReadValue {
  const { fields = [] } = JSON.parse(schema) as { fields?: readonly { name: string; type: unknown }[] };
  const dates = new Set(
    fields.filter(({ type }) => JSON.stringify(type).includes('"logicalType":"date"')).map(({ name }) => name),
  );
  return (bytes) => {
    try {
      const record = read(bytes);
      const values = wanted.map(([name, key]) => {
        const value = record[key];
        const isDate = typeof value === "number" && dates.has(name);
        return [name, isDate ? new Date(value * 86_400_000).toISOString().slice(0, 10) : (value ?? null)] as const;
      });
      return Buffer.from(jsonText(Object.fromEntries(values), plainValue));
    } catch (error) {
      if (error instanceof RangeError) {
        return `it is no record of its schema: ${error.message}`;
      }
      throw error;
    }
  };
}

/** What JSON has of a value of Avro. Bytes are texts in hexadecimal, after `\x`; numbers that JSON does not have are texts. */
function plainValue(value: unknown): unknown {
  if (value instanceof Uint8Array) {
    return `\\x${Buffer.from(value).toString("hex")}`;
  }
  return typeof value === "number" && !Number.isFinite(value) ? String(value) : (value ?? null);
}
