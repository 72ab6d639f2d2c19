/** One tool in `tools/list`. */
interface Tool {
  readonly name: string;
  readonly title: string;
  readonly description: string;
  readonly inputSchema: object;
  readonly annotations: object;
}

/** Name, JSON type and description of an argument; a `!` behind the name makes it required. */
type Argument = readonly [name: string, type: string, description: string];

type Row = readonly [name: string, title: string, description: string, ...args: readonly Argument[]];

const OWNER: Argument = ['owner!', 'string', 'Account that owns the repository. Not case sensitive.'];
const REPO: Argument = ['repo!', 'string', 'Name of the repository without the .git extension. Not case sensitive.'];
const PAGE: Argument = [
  'page',
  'integer',
  'Page of the results to fetch, counted from 1. Leave out for the first page.',
];
const PER_PAGE: Argument = ['perPage', 'integer', 'Results per page, at most 100. Leave out for 30.'];
const REF: Argument = [
  'ref',
  'string',
  'Commit SHA, branch or tag. Leave out for the default branch of the repository.',
];
const CITY: Argument = ['city!', 'string', 'City to look up, in any language, optionally followed by a country code.'];
const DAYS: Argument = ['days', 'integer', 'How many days ahead to look, from 1 to 14. Leave out for 3.'];

const CALLED =
  'Answers with a fixed text. Called by the benchmark; what it is given has no influence on what it answers.';

/** As verbose as real servers: the lengths follow those of well-known code hosting servers. */
const ROWS: readonly Row[] = [
  ['small', 'Small answer', CALLED, CITY, DAYS],
  ['text_10kb', 'Answer of 10 kB', CALLED, CITY, DAYS],
  ['text_100kb', 'Answer of 100 kB', CALLED, CITY, DAYS],
  ['sse', 'Answer as an event', CALLED, CITY, DAYS],
  ['progress', 'Answer after a report of progress', CALLED, CITY, DAYS],
  [
    'search_repositories',
    'Search repositories',
    'Find repositories by name, description, readme, topics or other metadata. Use this to discover projects, to find examples, or to locate a repository by name. Returns the most relevant matches first.',
    ['query!', 'string', 'Search text. Qualifiers such as language:, topic:, stars:> and org: narrow it down.'],
    ['sort', 'string', 'One of stars, forks, updated. Leave out to sort by relevance.'],
    PAGE,
    PER_PAGE,
  ],
  [
    'search_code',
    'Search code',
    'Search for code across all repositories the account can read. Use it to find exact symbols, functions or snippets; it does not understand meaning, only text.',
    ['query!', 'string', 'Search text with qualifiers such as repo:, path:, language: and symbol:.'],
    ['order', 'string', 'asc or desc. Leave out for desc.'],
    PAGE,
    PER_PAGE,
  ],
  [
    'get_file_contents',
    'Get file or folder',
    'Read one file, or list one folder, at a given commit, branch or tag. Files above 1 MiB are returned as a link.',
    OWNER,
    REPO,
    ['path!', 'string', 'Path from the root of the repository; a trailing slash means a folder.'],
    REF,
  ],
  [
    'create_or_update_file',
    'Create or update a file',
    'Write one file in a repository and commit the change. When the file exists, its present blob SHA has to be given, or the call is refused.',
    OWNER,
    REPO,
    ['path!', 'string', 'Path of the file to write.'],
    ['content!', 'string', 'New content of the file as text.'],
    ['message!', 'string', 'Commit message.'],
    ['branch!', 'string', 'Branch to commit to.'],
    ['sha', 'string', 'Blob SHA of the file being replaced.'],
  ],
  [
    'push_files',
    'Push several files',
    'Commit several files at once to one branch. Either all of them are written or none is.',
    OWNER,
    REPO,
    ['branch!', 'string', 'Branch to push to.'],
    ['message!', 'string', 'Commit message.'],
    ['files!', 'array', 'Files to write, each with a path and its content as text.'],
  ],
  [
    'list_commits',
    'List commits',
    'Commits of a branch in a repository, newest first, with author, date and message. Returns at least 30 results per page by default.',
    OWNER,
    REPO,
    REF,
    ['author', 'string', 'Only commits by this account or e-mail address.'],
    PAGE,
    PER_PAGE,
  ],
  [
    'create_branch',
    'Create a branch',
    'Create a branch in a repository, starting at another branch or at the default branch.',
    OWNER,
    REPO,
    ['branch!', 'string', 'Name of the branch to create.'],
    ['fromBranch', 'string', 'Branch to start from. Leave out for the default branch.'],
  ],
  [
    'issue_read',
    'Read an issue',
    'Read one issue: its fields, its comments, its labels or its sub-issues, as asked for by the method.',
    ['method!', 'string', 'One of get, get_comments, get_sub_issues, get_labels.'],
    OWNER,
    REPO,
    ['issueNumber!', 'integer', 'Number of the issue.'],
    PAGE,
    PER_PAGE,
  ],
  [
    'issue_write',
    'Create or change an issue',
    'Create an issue, or change the title, body, labels, assignees, milestone or state of one that exists.',
    ['method!', 'string', 'create or update.'],
    OWNER,
    REPO,
    ['issueNumber', 'integer', 'Number of the issue to change.'],
    ['title', 'string', 'Title of the issue.'],
    ['body', 'string', 'Body of the issue in Markdown.'],
    ['labels', 'array', 'Labels to set.'],
    ['assignees', 'array', 'Accounts to assign.'],
    ['state', 'string', 'open or closed.'],
  ],
  [
    'add_issue_comment',
    'Comment on an issue',
    'Add a comment to an issue. Works for pull requests too, where the comment is not part of a review.',
    OWNER,
    REPO,
    ['issueNumber!', 'integer', 'Number of the issue to comment on.'],
    ['body!', 'string', 'Text of the comment in Markdown.'],
  ],
  [
    'list_issues',
    'List issues',
    'Issues of a repository, filtered by state, labels and date. Pages are fetched with a cursor from the answer before.',
    OWNER,
    REPO,
    ['state', 'string', 'OPEN or CLOSED. Leave out for both.'],
    ['labels', 'array', 'Only issues with all of these labels.'],
    ['since', 'string', 'Only issues changed since this ISO 8601 date.'],
    ['after', 'string', 'Cursor from the page before.'],
    PER_PAGE,
  ],
  [
    'pull_request_read',
    'Read a pull request',
    'Read one pull request: its fields, diff, status, files, reviews, review comments or comments, as asked for by the method.',
    [
      'method!',
      'string',
      'One of get, get_diff, get_status, get_files, get_reviews, get_review_comments, get_comments.',
    ],
    OWNER,
    REPO,
    ['pullNumber!', 'integer', 'Number of the pull request.'],
    PAGE,
    PER_PAGE,
  ],
  [
    'create_pull_request',
    'Create a pull request',
    'Open a pull request from one branch into another, in the same repository or from a fork of it.',
    OWNER,
    REPO,
    ['title!', 'string', 'Title of the pull request.'],
    ['head!', 'string', 'Branch with the changes; owner:branch where it is in a fork.'],
    ['base!', 'string', 'Branch to merge into.'],
    ['body', 'string', 'Description in Markdown.'],
    ['draft', 'boolean', 'Whether to open it as a draft.'],
  ],
  [
    'merge_pull_request',
    'Merge a pull request',
    'Merge a pull request that has no conflicts and passes the checks its branch requires.',
    OWNER,
    REPO,
    ['pullNumber!', 'integer', 'Number of the pull request.'],
    ['mergeMethod', 'string', 'One of merge, squash, rebase.'],
    ['commitTitle', 'string', 'Title of the merge commit.'],
  ],
  [
    'list_workflow_runs',
    'List workflow runs',
    'Runs of one workflow of a repository, newest first, filtered by branch, event, actor and status.',
    OWNER,
    REPO,
    ['workflowId!', 'string', 'Id of the workflow, or the name of its file.'],
    ['branch', 'string', 'Only runs for this branch.'],
    ['status', 'string', 'Only runs in this state, such as queued, in_progress or completed.'],
    PAGE,
    PER_PAGE,
  ],
  [
    'get_job_logs',
    'Get job logs',
    'The log of one job of a workflow run, or of all failed jobs of a run. Long logs are cut at the front.',
    OWNER,
    REPO,
    ['jobId', 'integer', 'Id of the job.'],
    ['runId', 'integer', 'Id of the run, with failedOnly.'],
    ['failedOnly', 'boolean', 'Whether to return the logs of all failed jobs.'],
    ['tailLines', 'integer', 'How many lines to keep. Leave out for 500.'],
  ],
  [
    'list_notifications',
    'List notifications',
    'Notifications of the account: mentions, review requests, assignments and state changes, newest first.',
    ['filter', 'string', 'One of default, include_read_notifications, only_participating.'],
    ['since', 'string', 'Only those changed since this ISO 8601 date.'],
    ['owner', 'string', 'With repo: only those of this repository.'],
    ['repo', 'string', 'With owner: only those of this repository.'],
    PAGE,
    PER_PAGE,
  ],
  [
    'get_me',
    'Get my account',
    'The account the server acts for: login, name, e-mail address, company, plan and counts. Use it when a request speaks of me, my or mine.',
    ['reason', 'string', 'Why the account is asked for. Kept in the audit log.'],
  ],
];

function toTool([name, title, description, ...args]: Row): Tool {
  const properties = Object.fromEntries(
    args.map(([argument, type, description]) => [
      argument.replace('!', ''),
      type === 'array' ? { type, items: { type: 'string' }, description } : { type, description },
    ]),
  );
  const required = args.flatMap(([argument]) => (argument.endsWith('!') ? [argument.slice(0, -1)] : []));
  const readOnlyHint = /^(?:search|get|list)_|_read$/.test(name);
  return {
    name,
    title,
    description,
    inputSchema: { type: 'object', properties, required },
    annotations: { title, readOnlyHint },
  };
}

/** The tools of the fixture: 23, with about as much text as those of a well-known code hosting server. */
export const TOOLS: readonly Tool[] = ROWS.map(toTool);
