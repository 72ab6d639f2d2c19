/** Returns the path of the endpoint of a view, which is empty for the merged one. */
export function endpointPath(view: string): string {
  return view === '' ? '/mcp' : `/mcp/${view}`;
}

/** Returns the path of the endpoint of a view for clients of HTTP+SSE. */
export function ssePath(view: string): string {
  return view === '' ? '/sse' : `/sse/${view}`;
}
