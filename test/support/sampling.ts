/** Returns params of `sampling/createMessage` with a resource link in the result of a tool. */
export function samplingWithLink(uri: string): object {
  const content = [{ type: 'tool_result', toolUseId: '1', content: [{ type: 'resource_link', name: 'n', uri }] }];
  return { messages: [{ role: 'user', content }], maxTokens: 9 };
}
