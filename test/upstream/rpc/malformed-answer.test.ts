import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MessageError, parseMessage } from '../../../src/protocol/jsonrpc.ts';
import { malformedAnswer, wasAnswerTo } from '../../../src/upstream/rpc/malformed-answer.ts';

function errorOf(text: string): MessageError {
  try {
    parseMessage(text);
  } catch (thrown) {
    if (thrown instanceof MessageError) return thrown;
  }
  throw new Error('the text is a message');
}

// N-06
test('the error of an answer beyond a bound names the bound', () => {
  const deep = `{"jsonrpc":"2.0","id":1,"result":${'['.repeat(1_000)}${']'.repeat(1_000)}}`;
  const { code, message } = malformedAnswer('deep', errorOf(deep));
  assert.equal(code, 'upstream-protocol');
  assert.match(message, /upstream "deep" sent an answer that was refused: nested too deeply/);
});

test('the error of an answer that is no JSON does not quote it', () => {
  const { message } = malformedAnswer('a', errorOf('{"jsonrpc":"2.0","id":1,"result":secret}'));
  assert.match(message, /upstream "a" answered with something that is not JSON-RPC/);
  assert.doesNotMatch(message, /secret/);
});

test('a malformed text was the answer if it is no JSON, or has the id of the request', () => {
  const texts = [
    '{',
    '{"jsonrpc":"2.0","id":1,"result":1}',
    '{"jsonrpc":"2.0","id":2,"result":1}',
    '{"jsonrpc":"2.0","method":1}',
  ];
  assert.deepEqual(
    texts.map((text) => wasAnswerTo(1, errorOf(text))),
    [true, true, false, false],
  );
});
