const ESCAPES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

function escaped(text: string): string {
  return text.replaceAll(/[&<>"']/g, (character) => ESCAPES[character] ?? '');
}

/**
 * Returns the hint for a person who opens an endpoint in a browser.
 *
 * @param status 405 at an endpoint, because programs send the same request and must not retry; 404 elsewhere.
 */
export function browserHint(endpoint: string, status: 404 | 405 = 405): Response {
  const url = escaped(endpoint);
  const body = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Linkspan</title>
<h1>Linkspan</h1>
<p>This is an MCP gateway. It is for MCP clients, not for browsers.</p>
<p>Give your client this URL:</p>
<pre>${url}</pre>
<p>For example:</p>
<pre>claude mcp add --transport http linkspan ${url}</pre>
</html>
`;
  return new Response(body, {
    status,
    headers: {
      ...(status === 405 ? { allow: 'POST' } : {}),
      'content-type': 'text/html; charset=utf-8',
      'content-security-policy': "default-src 'none'",
      'x-content-type-options': 'nosniff',
      'cache-control': 'no-store',
    },
  });
}
