/** Requirements of the MCP specification on a gateway: a number, a sentence and a link for each. */
import type { Feature } from './matrix/words.ts';

export interface Requirement {
  /** `T` transport, `L` lifecycle, `M` merging, `X` between the eras. */
  readonly id: string;
  readonly says: string;
  readonly link: string;
  /** Features of the interop matrix (`npm run matrix`) that prove it; the matrix has no tests with names. */
  readonly matrix?: readonly Feature[];
}

const SITE = 'https://modelcontextprotocol.io';
const NEW = `${SITE}/specification/2026-07-28`;
const OLD = `${SITE}/specification/2025-11-25`;

const HTTP = `${NEW}/basic/transports/streamable-http`;
const STDIO = `${NEW}/basic/transports/stdio`;
const BASIC = `${NEW}/basic`;
const VERSIONS = `${NEW}/basic/versioning`;
const CANCELLATION = `${NEW}/basic/patterns/cancellation`;
const ROUNDS = `${NEW}/basic/patterns/mrtr`;
const LISTENING = `${NEW}/basic/patterns/subscriptions`;
const PROGRESS = `${NEW}/basic/patterns/progress`;
const TOOLS = `${NEW}/server/tools`;
const RESOURCES = `${NEW}/server/resources`;
const CACHING = `${NEW}/server/utilities/caching`;
const PAGES = `${NEW}/server/utilities/pagination`;
const COMPLETION = `${NEW}/server/utilities/completion`;
const LOGGING = `${NEW}/server/utilities/logging`;
const OLD_HTTP = `${OLD}/basic/transports`;
const LIFECYCLE = `${OLD}/basic/lifecycle`;
const ELICITATION = `${OLD}/client/elicitation`;
const OLD_TASKS = `${OLD}/basic/utilities/tasks`;
const TASKS = `${SITE}/extensions/tasks/overview`;
const APPS = `${SITE}/extensions/apps/overview`;

type Row = readonly [id: string, says: string, link: string, matrix?: readonly Feature[]];

const TRANSPORT: readonly Row[] = [
  ['T-001', 'A page of another site gets 403; a request without Origin is accepted', HTTP],
  ['T-002', 'The body decides the era, and one path serves both eras', VERSIONS],
  ['T-003', 'A modern request without MCP-Protocol-Version is a header mismatch', HTTP],
  ['T-004', 'A header with another revision than the body is a header mismatch', HTTP],
  ['T-005', 'An unsupported revision is refused with the supported ones', VERSIONS],
  ['T-006', 'These are the modern revisions of server/discover', VERSIONS],
  ['T-007', 'An envelope without a required member is invalid', `${BASIC}#meta`],
  ['T-008', 'clientInfo is optional', BASIC],
  ['T-009', 'Mcp-Method equals the method of the body exactly', HTTP],
  ['T-010', 'Mcp-Name equals the name in the body, plain or in base64', HTTP],
  ['T-011', 'Invalid base64 is refused; text that only resembles it is plain', HTTP],
  ['T-012', 'Mcp-Param-… headers equal the arguments that the published schema annotates', HTTP],
  ['T-013', 'A method that the era or the server lacks gets 404 and −32601', HTTP],
  ['T-014', 'A missing capability gets 400 and is named as an object', BASIC],
  ['T-015', 'A modern notification gets 202 without a body', HTTP],
  ['T-016', 'Responses and arrays are refused as modern requests', HTTP],
  ['T-017', 'The modern era has no session ids and no event ids', HTTP],
  ['T-018', 'A modern request is answered with JSON or with events', HTTP],
  ['T-019', 'No request is ever written on a modern stream', HTTP],
  ['T-020', 'A disconnect of a modern client cancels its request', CANCELLATION],
  ['T-021', 'Nothing follows the answer', ROUNDS],
  ['T-022', 'Events pass through proxies unbuffered, and idle streams carry comments', HTTP],
  ['T-023', 'Legacy responses and notifications get 202, invalid ones 4xx', OLD_HTTP],
  ['T-024', 'A GET that accepts events opens an event stream', OLD_HTTP],
  ['T-025', 'A GET stream carries an answer only when it resumes the stream of its request', OLD_HTTP],
  ['T-026', 'Each message goes to exactly one stream of a session', OLD_HTTP],
  ['T-027', 'A disconnect of a legacy client cancels nothing', OLD_HTTP],
  ['T-028', 'Event ids are unique in a session, and replay only their own stream', OLD_HTTP],
  ['T-029', 'From 2025-11-25 on, a stream begins with an event id to resume from', OLD_HTTP],
  ['T-030', 'A GET resumes any stream', OLD_HTTP],
  ['T-031', 'A request without a session id gets 400, with an ended one 404', OLD_HTTP],
  ['T-032', 'An unsupported revision in the header gets 400; without one the session’s counts', OLD_HTTP],
  ['T-033', '2025-03-26 has batches, but initialize cannot be in one', `${SITE}/specification/2025-03-26/basic`],
  ['T-034', 'No other revision has batches', `${SITE}/specification/2025-06-18/changelog`],
  ['T-035', '2024-11-05 is served over GET /sse', `${SITE}/specification/2024-11-05/basic/transports`],
  ['T-036', 'After an upstream lost our session, it is initialized again', OLD_HTTP],
  ['T-037', 'A broken stream of an upstream is resumed after the delay that it asked for', OLD_HTTP],
  ['T-038', 'An upstream gets our Accept header, revision and its session id', OLD_HTTP],
  ['T-039', 'A modern upstream gets headers made from the body', HTTP],
  ['T-040', 'Over stdio, a line is a message, and other output does no harm', STDIO],
  ['T-041', 'A program is ended by closing stdin, then SIGTERM, then SIGKILL', STDIO],
  ['T-042', 'A modern program gets no responses, whatever it sends', STDIO],
];

const LIFE: readonly Row[] = [
  ['L-001', 'server/discover returns revisions, capabilities and how long they are valid', `${NEW}/server/discover`],
  ['L-002', 'initialize is answered with the requested legacy revision, else the latest one', LIFECYCLE],
  ['L-003', 'No capability is used that was not negotiated', `${LIFECYCLE}#operation`],
  ['L-004', 'Before it is initialized, a client gets only what its own requests cause', LIFECYCLE],
  ['L-005', 'An upstream gets notifications/initialized before any other message', LIFECYCLE],
  ['L-006', 'initialize is never cancelled', `${OLD}/basic/utilities/cancellation`],
  ['L-007', 'A program that is silent, answers nonsense or exits is legacy', STDIO],
  ['L-008', 'The era of a remote upstream follows from the body of its 400', `${HTTP}#backward-compatibility`],
  ['L-009', '401, 403, 5xx and silence of a remote upstream do not show its era', VERSIONS],
  ['L-010', 'An upstream that names a shared revision is asked once more', VERSIONS],
  ['L-011', 'The verdict is kept, and renewed after a failure and after a time', VERSIONS],
  ['L-012', 'An upstream that discovers no modern revision is legacy', VERSIONS],
  ['L-013', 'ping is answered in both directions', `${OLD}/basic/utilities/ping`],
  ['L-014', 'Ids are unique within their scope, and never null', BASIC],
  ['L-015', 'Every wait for an upstream ends, with or without progress', CANCELLATION],
  ['L-016', 'A crashed program is started again, with its subscriptions', STDIO],
  ['L-017', 'A modern request uses nothing from an earlier request', `${BASIC}#statelessness`],
  ['L-018', 'A request refused for its revision gets the supported ones', VERSIONS],
];

const MERGE: readonly Row[] = [
  ['M-001', 'Tools of the same name from two upstreams can both be called', `${TOOLS}#tool-names`],
  ['M-002', 'Published names are short and have only safe characters', `${TOOLS}#tool-names`],
  ['M-003', 'Lists keep their order', TOOLS],
  ['M-004', 'A modern list does not depend on the connection or on earlier calls', TOOLS],
  ['M-005', 'Declared lists can be read; others get −32601', TOOLS],
  ['M-006', 'An unknown tool or prompt gets −32602', TOOLS],
  ['M-007', 'An unknown resource gets −32602, and −32002 for legacy clients', RESOURCES],
  ['M-008', 'An invalid cursor gets −32602', PAGES],
  ['M-009', 'Cursors of upstreams are returned unchanged, and paging ends', PAGES],
  ['M-010', 'Cacheable results carry their lifetime and scope', CACHING],
  ['M-011', 'All pages of a list have the same lifetime and scope', CACHING],
  ['M-012', 'A merged list has the shortest lifetime and the narrowest scope of its parts', CACHING],
  ['M-013', 'A private result is never served to another client', CACHING],
  ['M-014', 'No cached answer serves another request or a retry', CACHING],
  ['M-015', 'A change notification takes effect at once', CACHING],
  ['M-016', 'URIs in results lead back to their upstream', `${TOOLS}#resource-links`],
  ['M-017', 'Completion reaches the upstream with its original names', COMPLETION],
  ['M-018', 'Completion values pass unchanged, and there are at most 100', COMPLETION],
  ['M-019', 'Progress carries the client’s own token with its type', PROGRESS],
  ['M-020', 'Progress only increases, and ends with the answer', PROGRESS],
  ['M-021', 'Task ids are unguessable strings that fit into a header', TASKS],
  ['M-022', 'User interfaces under ui:// can be read', APPS],
  ['M-023', 'An upstream’s original URI is accepted if only one upstream has it', RESOURCES],
  ['M-024', 'Over HTTP, a tool with an invalid x-mcp-header is left out and logged', HTTP],
  ['M-025', 'Content is not changed', RESOURCES],
  ['M-026', 'Every modern result carries our serverInfo', BASIC],
  ['M-027', 'Reserved keys of _meta are not invented, unknown ones are kept', `${BASIC}#meta`],
  ['M-028', 'An upstream that is down removes only its own items', TOOLS],
  ['M-029', 'A result of an unknown type is not a result', `${BASIC}#resulttype`],
  ['M-030', 'A legacy result without a type is complete', `${BASIC}#resulttype`],
];

const BRIDGE: readonly Row[] = [
  ['X-001', 'A legacy result becomes complete, with lifetime and scope', CACHING],
  ['X-002', 'A legacy client gets neither of them', OLD],
  ['X-003', 'Questions of a modern upstream reach a legacy client on the stream of its call', OLD_HTTP],
  ['X-004', 'A retry has a new id, the same parameters and the unchanged state', ROUNDS],
  ['X-005', 'Answers belong to one round of one request', ROUNDS],
  ['X-006', 'A round without questions is paced, and rounds are limited', ROUNDS],
  ['X-007', 'No client is asked beyond its declared capabilities', ELICITATION],
  ['X-008', 'An upstream’s −32021 is translated for the client’s revision', BASIC],
  ['X-009', 'A refusal by a legacy client ends the call; a refused form is cancelled', `${NEW}/client/sampling`],
  ['X-010', 'Questions of a legacy upstream become an input_required answer', ROUNDS],
  ['X-011', 'input_required has questions or a state', ROUNDS],
  ['X-012', 'Only calls, prompts and reads are answered with input_required', ROUNDS],
  ['X-013', 'A modern client is asked only within the capabilities of its request', ROUNDS],
  ['X-014', 'A state of another request is refused', ROUNDS],
  ['X-015', 'A retry finds its call from any process', ROUNDS],
  ['X-016', 'A question is answered once, however often the retry comes', ROUNDS],
  ['X-017', 'Unanswered questions are asked again, unknown answers ignored', ROUNDS],
  ['X-018', 'A retry gets the outcome that its call had meanwhile', ROUNDS],
  ['X-019', 'A call without a retry ends after a time', ROUNDS],
  ['X-020', 'A disconnect of a retry cancels the call', CANCELLATION],
  ['X-021', 'A question of no single call is shown to no client', ROUNDS],
  ['X-022', 'A question reaches only the client of its call', ROUNDS],
  ['X-023', 'A legacy connection declares the capabilities of its clients', LIFECYCLE],
  ['X-024', 'An upstream that waits for an answer gets progress', PROGRESS],
  ['X-025', 'Legacy error codes are not used in the modern era', BASIC],
  ['X-026', 'A required URL elicitation is asked, and the call made again', ELICITATION],
  ['X-027', 'A URL elicitation for a 2025-11-25 client has an elicitationId', ELICITATION],
  ['X-028', 'The end of a URL elicitation is reported to the client that was sent there', ELICITATION],
  ['X-029', 'Modern requests get log messages only if they ask for them', LOGGING, ['log']],
  ['X-030', 'A session’s log level is sent with each of its modern requests', LOGGING],
  ['X-031', 'An unknown log level is refused', LOGGING],
  ['X-032', 'A listen stream starts with an acknowledgement of its notifications', LISTENING],
  ['X-033', 'A listen stream carries only acknowledged notifications', LISTENING],
  ['X-034', 'Listening subscribes at legacy upstreams while any client listens', LISTENING],
  ['X-035', 'Subscribing listens at modern upstreams, and loses nothing', LISTENING, ['subscribe/update']],
  ['X-036', 'A listen stream gets its answer when the gateway stops', LISTENING],
  ['X-037', 'A cancel reaches the upstream, and late answers are dropped', `${OLD}/basic/utilities/cancellation`],
  ['X-038', 'Calls that became tasks are cancelled as tasks', OLD_TASKS],
  ['X-039', 'A client without task support gets no task', TASKS],
  ['X-040', 'Tasks of 2025-11-25 are not used in the modern era', TASKS],
  ['X-041', 'A tool error completes a modern task and fails a legacy one', OLD_TASKS],
  ['X-042', 'A tool that requires tasks works for clients without them', OLD_TASKS],
  [
    'X-043',
    'Structured content that is not an object is wrapped for legacy clients',
    `${SITE}/seps/2106-json-schema-2020-12`,
  ],
  ['X-044', 'Content unknown to an older revision is sent as text', OLD],
  ['X-045', 'A call whose stream broke is not sent again', HTTP],
  ['X-046', 'The state of one upstream never reaches another', ROUNDS],
  ['X-047', 'Headers that an upstream refused are made again, once', HTTP],
  [
    'X-048',
    'Every pair of revisions works together',
    VERSIONS,
    ['list', 'call', 'tool error', 'progress', 'cancel', 'elicitation form', 'log', 'subscribe/update'],
  ],
];

export const REQUIREMENTS: readonly Requirement[] = [...TRANSPORT, ...LIFE, ...MERGE, ...BRIDGE].map(
  ([id, says, link, matrix]) => ({ id, says, link, ...(matrix === undefined ? {} : { matrix }) }),
);

/**
 * Requirements without a test that proves them, with the reason. A test may still name one if it shows what happens instead.
 * Should be empty.
 */
export const PENDING: Readonly<Record<string, string>> = {};
