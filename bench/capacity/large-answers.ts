import { FixtureServer, textResult, toolNamed } from '../fixture-server.ts';
import { member } from '../mcp-client.ts';

const MIB = 1_048_576;
/** The end of the text of each large answer. */
export const END_OF_TEXT = 'the end of this answer.';

/** The tools with large answers, and the size of these. */
const SIZES = { one_mib: MIB, eight_mib: 8 * MIB } as const;

/** Starts an upstream with tools whose answers are large. Their bytes are made once, because the upstream shares a core with the clients whose times are measured. */
export function startLargeAnswers(): Promise<FixtureServer> {
  const answers = new Map(
    Object.entries(SIZES).map(([tool, bytes]) => [tool, Buffer.from(`${JSON.stringify(textResult(textOf(bytes)))}}`)]),
  );
  return FixtureServer.start({
    capabilities: { tools: {} },
    answer: ({ id, method, params, response }) => {
      if (method === 'tools/list') return { tools: Object.keys(SIZES).map(toolNamed) };
      const answer = answers.get(String(member(params, 'name')));
      if (answer === undefined) return textResult('no such tool');
      const head = `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":`;
      const bytes = Buffer.byteLength(head) + answer.length;
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': bytes });
      response.write(head);
      response.end(answer);
      return undefined;
    },
  });
}

function textOf(bytes: number): string {
  const line = 'a line of a large answer that a slow client reads\n';
  return line.repeat(Math.ceil(bytes / line.length)).slice(0, bytes - END_OF_TEXT.length) + END_OF_TEXT;
}
