import { z } from "../../base/zod.js";
import { isPlainUrl } from "./uri.js";
import { attempt, checking, type Refuse, secret, text } from "./values.js";

/** A catalog of Iceberg tables that speaks Iceberg's REST protocol. */
export interface CatalogSpec {
  /** Without `/v1`. */
  readonly url: string;
  readonly warehouse?: string | undefined;
  /** A secret: sent as `Authorization: Bearer`. */
  readonly token?: string | undefined;
  readonly oauth2?: OAuth2Spec | undefined;
  readonly auth?: "sigv4" | undefined;
  /** Whose credentials read the files in S3. */
  readonly credentials: "vended" | "own";
}

/** How tokens are fetched: by OAuth 2, with the credentials of a client. */
export interface OAuth2Spec {
  readonly client_id: string;
  /** A secret. */
  readonly client_secret: string;
  readonly scope: string;
  /** Default: that of the catalog. */
  readonly token_url?: string | undefined;
}

const url = text.refine(
  isCatalogUrl,
  "expected a URL such as https://catalog.example.com, without user, password and query",
);

function isCatalogUrl(given: string): boolean {
  return isPlainUrl(given) && new URL(given).search === "" && new URL(given).hash === "";
}

const oauth2 = z.strictObject({
  client_id: text.describe("Id of the client."),
  client_secret: text.meta(secret).describe("Secret of the client."),
  scope: text.default("catalog").describe("Scope of the tokens. Default: catalog."),
  token_url: url.optional().describe("URL that gives out tokens. Default: that of the catalog."),
}) satisfies z.ZodType<OAuth2Spec>;

/** `input.catalog` of a spec. */
export const catalog = z
  .strictObject({
    url: url.describe("URL of an Iceberg REST catalog, without /v1."),
    warehouse: text.optional().describe("Warehouse that the catalog is asked for."),
    token: text.optional().meta(secret).describe("Bearer token of requests."),
    oauth2: oauth2.optional(),
    auth: z
      .literal("sigv4")
      .optional()
      .describe("sigv4 signs requests for AWS, with the credentials of the environment."),
    credentials: z
      .enum(["vended", "own"])
      .default("vended")
      .describe("For files in S3: vended takes credentials that the catalog gives out, own those of the environment."),
  })
  .superRefine(checking(checkLogin))
  .meta(attempt) satisfies z.ZodType<CatalogSpec>;

function checkLogin({ token, oauth2: client, auth }: CatalogSpec, refuse: Refuse): void {
  if ([token, client, auth].filter((login) => login !== undefined).length > 1) {
    refuse([], "expected at most one of token, oauth2 and auth");
  }
}

/** The namespaces of a table from the top, and its name; undefined: the text is no name of a table. */
export function tableName(table: string): { readonly namespace: readonly string[]; readonly name: string } | undefined {
  const levels = table.split(".");
  const [name = "", ...namespace] = levels.toReversed();
  return levels.length < 2 || levels.includes("") || /[\p{Cc}/]/u.test(table)
    ? undefined
    : { namespace: namespace.toReversed(), name };
}
