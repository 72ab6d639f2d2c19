/** Returns the path of the endpoint of a view, which is empty for the merged one. */
export function endpointPath(view: string): string {
  return view === '' ? '/mcp' : `/mcp/${view}`;
}
