import { FixtureServer, textResult, toolNamed } from '../fixture-server.ts';
import { member } from '../mcp-client.ts';

const MIB = 1_048_576;
/** The end of the text of each large answer. */
export const END_OF_TEXT = 'the end of this answer.';

/** The tools with large answers, and the size of these. */
const SIZES = { one_mib: MIB, eight_mib: 8 * MIB } as const;

/** Starts an upstream with tools whose answers are large. */
export function startLargeAnswers(): Promise<FixtureServer> {
  const answers = new Map(Object.entries(SIZES).map(([tool, bytes]) => [tool, textResult(textOf(bytes))]));
  return FixtureServer.start({
    capabilities: { tools: {} },
    answer: ({ method, params }) => {
      if (method === 'tools/list') return { tools: Object.keys(SIZES).map(toolNamed) };
      return answers.get(String(member(params, 'name'))) ?? textResult('no such tool');
    },
  });
}

function textOf(bytes: number): string {
  const line = 'a line of a large answer that a slow client reads\n';
  return line.repeat(Math.ceil(bytes / line.length)).slice(0, bytes - END_OF_TEXT.length) + END_OF_TEXT;
}
