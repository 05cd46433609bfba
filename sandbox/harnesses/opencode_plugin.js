// Gives OpenCode's tool shells the task's environment instead of the harness's, and writes a receipt:
// one line when it is loaded, one for each shell. A run without the receipt did not run as planned.
import { appendFileSync, readFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"

const folder = dirname(fileURLToPath(import.meta.url))
const { env, receipt } = JSON.parse(readFileSync(join(folder, "shell-env.json"), "utf8"))
const note = (entry) => appendFileSync(receipt, JSON.stringify(entry) + "\n")

export const ShellEnvironment = async () => {
  note({ event: "loaded" })
  return {
    "shell.env": async ({ callID, sessionID }, output) => {
      // The harness lays output.env over its own environment; undefined removes a variable.
      for (const name of Object.keys(process.env)) output.env[name] = undefined
      Object.assign(output.env, env)
      note({ event: "shell", call_id: callID ?? null, session_id: sessionID ?? null })
    },
  }
}
