/** Returns the path of the endpoint of a view, which is empty for the merged one. */
export function endpointPath(view: string): string {
  return view === '' ? '/mcp' : `/mcp/${view}`;
}

/** Returns the view that an operator means, by its id or the path of its endpoint. An id has no slash. */
export function viewIdOf(text: string): string {
  return text.replace(/^\/mcp(?:\/|$)/, '');
}

/** Returns the path of the endpoint of a view for clients of HTTP+SSE. */
export function ssePath(view: string): string {
  return view === '' ? '/sse' : `/sse/${view}`;
}
