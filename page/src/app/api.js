/** Requests to the server that the page is from: with the token where it asks for one, and again where it is busy. */

const TOKEN = "parsecaps-token", MOST_TRIES = 5;

/** @typedef {{method?: string, body?: FormData | string, type?: string}} Question */

export class ProblemError extends Error {
  /** @param {number} status @param {string} detail */
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export class Api {
  /** @param {(wrong: boolean) => Promise<string>} askToken asks the reader for the token of the server */
  constructor(askToken) {
    this.askToken = askToken;
    /** @type {Promise<string> | null} */
    this.asking = null;
  }

  /** The answer to a request; a problem is an error with the words of the server. @param {string} path @param {Question} question */
  async ask(path, { method = "GET", body, type } = {}) {
    for (let tries = 1; ; tries++) {
      const token = sessionStorage.getItem(TOKEN);
      /** @type {Record<string, string>} */
      const headers = {};
      if (token !== null) headers.Authorization = `Bearer ${token}`;
      if (type !== undefined) headers["Content-Type"] = type;
      const answer = await fetch(path, { method, body, headers }).catch(() => null);
      if (answer === null) throw new ProblemError(0, "the server does not answer; is it running?");
      if (answer.ok) return answer;
      if (answer.status === 401) {
        await this.renew(token);
        continue;
      }
      const wait = Number(answer.headers.get("Retry-After"));
      if (answer.status === 503 && wait > 0 && tries < MOST_TRIES) {
        await new Promise((resolve) => setTimeout(resolve, 1000 * wait));
        continue;
      }
      throw new ProblemError(answer.status, await detailOf(answer));
    }
  }

  /** Ask once for the token, however many requests need it. @param {string | null} refused */
  async renew(refused) {
    if (sessionStorage.getItem(TOKEN) !== refused) return;
    this.asking ??= this.askToken(refused !== null);
    sessionStorage.setItem(TOKEN, await this.asking);
    this.asking = null;
  }

  /** @param {string} path */
  async get(path) {
    return (await this.ask(path)).json();
  }

  /** Send files as a form. @param {string} path @param {File[]} files */
  async sendFiles(path, files) {
    const body = new FormData();
    for (const file of files) body.append("files", file, file.name);
    return (await this.ask(path, { method: "POST", body })).json();
  }

  /** @param {string} path @param {unknown} content */
  async send(path, content) {
    return (await this.ask(path, { method: "POST", body: JSON.stringify(content), type: "application/json" })).json();
  }
}

/** @param {Response} answer */
async function detailOf(answer) {
  const problem = await answer.json().catch(() => null);
  return String(problem?.detail ?? `the server answers with ${answer.status}`);
}
