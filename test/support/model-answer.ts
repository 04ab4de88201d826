export const modelAnswer = {
  content: "{}",
  embedding: undefined,
  finish: "stop",
  isRefusal: false,
  model: "mock-1",
  tokens: { prompt: 7, cached: 0, completion: 3 },
} as const;
