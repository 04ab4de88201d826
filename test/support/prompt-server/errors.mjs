// Error answers of the mock server, as OpenAI's API reference and llama.cpp's server have them.
const error = (status, message, type, code = null, param = null) => ({
  status,
  body: { error: { message, type, param, code } },
});

export const errors = {
  noKey: () =>
    error(
      401,
      "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth (i.e. Authorization: Bearer YOUR_KEY).",
      "invalid_request_error",
    ),
  wrongKey: (key) =>
    error(
      401,
      `Incorrect API key provided: ${key.slice(0, 5)}${"*".repeat(8)}${key.slice(-4)}. You can find your API key at https://platform.openai.com/account/api-keys.`,
      "invalid_request_error",
      "invalid_api_key",
    ),
  noModel: (model) =>
    error(
      404,
      `The model \`${model}\` does not exist or you do not have access to it.`,
      "invalid_request_error",
      "model_not_found",
    ),
  noPath: (method, path) => error(404, `Invalid URL (${method} ${path})`, "invalid_request_error"),
  notJson: () =>
    error(
      400,
      "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP library correctly.)",
      "invalid_request_error",
    ),
  noMessages: () =>
    error(
      400,
      "Missing required parameter: 'messages'.",
      "invalid_request_error",
      "missing_required_parameter",
      "messages",
    ),
  poison: () =>
    error(
      400,
      "Invalid prompt: your prompt was flagged as potentially violating our usage policy. Please try again with a different prompt.",
      "invalid_request_error",
      "invalid_prompt",
    ),
  tooLong: (context, tokens) =>
    error(
      400,
      `This model's maximum context length is ${context} tokens. However, your messages resulted in ${tokens} tokens. Please reduce the length of the messages.`,
      "invalid_request_error",
      "context_length_exceeded",
      "messages",
    ),
  maxTokens: () =>
    error(
      400,
      "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
      "invalid_request_error",
      "unsupported_parameter",
      "max_tokens",
    ),
  temperature: (value) =>
    error(
      400,
      `Unsupported value: 'temperature' does not support ${value} with this model. Only the default (1) value is supported.`,
      "invalid_request_error",
      "unsupported_value",
      "temperature",
    ),
  noFormat: () =>
    error(
      400,
      "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.",
      "invalid_request_error",
      null,
      "response_format",
    ),
  badSchema: (name, why) =>
    error(
      400,
      `Invalid schema for response_format '${name}': ${why}.`,
      "invalid_request_error",
      null,
      "response_format",
    ),
  limited: (model, { kind, limit, seconds }) =>
    error(
      429,
      `Rate limit reached for ${model} in organization org-test on ${kind} per min (${kind === "tokens" ? "TPM" : "RPM"}): Limit ${limit}. Please try again in ${seconds.toFixed(3)}s. Visit https://platform.openai.com/account/rate-limits to learn more.`,
      kind,
      "rate_limit_exceeded",
    ),
  quota: () =>
    error(
      429,
      "You exceeded your current quota, please check your plan and billing details. For more information on this error, read the docs: https://platform.openai.com/docs/guides/error-codes/api-errors.",
      "insufficient_quota",
      "insufficient_quota",
    ),
  failed: () => error(500, "The server had an error while processing your request. Sorry about that!", "server_error"),
  overloaded: () => error(503, "The engine is currently overloaded, please try again later.", "server_error"),
};
