"use strict";
// The chat page of the gateway. Texts of the model only ever become text nodes, never markup. Nothing is stored.
const $ = id => document.getElementById(id);
let conversation = [];
let running = null;  // The AbortController of the answer that is being written.
let following = true;  // The newest line stays in view, until the reader scrolls up.
let followed = {top: 0, end: 0};  // The scroll position and height when the view followed last.

function headers() {
  const token = $("token").value.trim();
  return token ? {"Authorization": "Bearer " + token} : {};
}

function tell(trouble) {
  $("trouble").textContent = trouble;
  $("trouble").hidden = !trouble;
}

async function reasonOf(response) {
  try {
    const {message, code} = (await response.json()).error;
    return code === "context_length_exceeded" ? message + ". Press New chat to begin again." : message;
  } catch {
    return "The server answers with code " + response.status + ".";
  }
}

async function showModel() {
  try {
    const response = await fetch("v1/models", {headers: headers()});
    if (!response.ok) return tell(await reasonOf(response));
    $("model").textContent = (await response.json()).data[0].id;
    tell("");
  } catch (error) {
    tell("The server cannot be reached: " + error.message);
  }
}

function showStart() {
  $("start").hidden = document.querySelector(".message") !== null;
}

// The event of scrolling up may come after the next token, so the place itself is compared with the last one followed
// to. A window that grows and an answer that is taken away move the place too, but to the end.
function follow() {
  const box = $("messages");
  const end = Math.min(followed.end, box.scrollHeight) - 8;
  if (box.scrollTop < followed.top - 8 && box.scrollTop + box.clientHeight < end) following = false;
  if (!following) return;
  box.scrollTop = box.scrollHeight;
  followed = {top: box.scrollTop, end: box.scrollHeight};
}

function addButton(name, parent, action) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(name);
  button.addEventListener("click", () => action(button));
  parent.append(button);
}

// Copies `text`, which `element` shows.
async function copy(text, element, button) {
  // Pages that come without TLS from another machine have no clipboard.
  if (!navigator.clipboard) return getSelection().selectAllChildren(element);
  await navigator.clipboard.writeText(text);
  button.textContent = "Copied";
}

function addMessage(role) {
  const box = document.createElement("div");
  box.className = "message " + role;
  const thoughts = document.createElement("div");
  thoughts.className = "thoughts";
  thoughts.hidden = true;
  const text = document.createElement("div");
  text.className = "text";
  const note = document.createElement("div");
  note.className = "note";
  box.append(thoughts, text, note);
  $("messages").append(box);
  showStart();
  follow();
  return {box, thoughts, text, note};
}

function request() {
  const system = $("system").value;
  const body = {messages: system ? [{role: "system", content: system}, ...conversation] : conversation, stream: true};
  if ($("temperature").value) body.temperature = Number($("temperature").value);
  if ($("max-tokens").value) body.max_tokens = Number($("max-tokens").value);
  return body;
}

// Yields the data of server-sent events until [DONE].
async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let unread = "";
  for (;;) {
    const {done, value} = await reader.read();
    if (done) throw new Error("the answer has ended too early");
    unread += value;
    const lines = unread.split("\n");
    unread = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ")) continue;
      const data = line.slice("data: ".length);
      if (data === "[DONE]") return;
      yield JSON.parse(data);
    }
  }
}

// Sends a message and writes the answer to it. When the message is refused, it leaves the conversation, and its text
// goes back to where it was written.
async function answer(text) {
  const messages = conversation;  // "New chat" begins another list while this answer is being written.
  // A message without an answer is joined with the next one, because templates want the roles in turn.
  const before = messages[messages.length - 1]?.role === "user" ? [messages.pop()] : [];
  messages.push({role: "user", content: [...before.map(message => message.content), text].join("\n")});
  const asked = addMessage("user");
  asked.text.append(text);
  const shown = addMessage("assistant");
  let content = "";
  let trouble = "";
  let timer = null;  // Several pieces that come in a short time are shown at once.
  const show = () => {
    clearTimeout(timer);
    timer = null;
    showMarkdown(shown.text, content);
    follow();
  };
  running = new AbortController();
  $("send").hidden = true;
  $("stop").hidden = false;
  tell("");
  try {
    const response = await fetch("v1/chat/completions", {
      method: "POST", headers: {...headers(), "Content-Type": "application/json"}, body: JSON.stringify(request()),
      signal: running.signal});
    if (!response.ok) throw new Error(await reasonOf(response));
    for await (const event of eventsOf(response)) {
      if (event.error) throw new Error(event.error.message);
      const choice = event.choices[0];
      const delta = choice?.delta ?? {};
      if (delta.reasoning_content) {
        shown.thoughts.hidden = false;
        shown.thoughts.append(delta.reasoning_content);
      }
      if (delta.content) {
        content += delta.content;
        timer ??= setTimeout(show, 30);
      }
      if (choice?.finish_reason === "length") shown.note.append("The answer was cut at its longest length. ");
      follow();
    }
  } catch (error) {
    if (error.name !== "AbortError") trouble = error.message;
  }
  running = null;
  $("send").hidden = false;
  $("stop").hidden = true;
  show();
  if (messages !== conversation) return;
  tell(trouble);
  if (content) {
    messages.push({role: "assistant", content});
    $("messages").querySelectorAll(".again").forEach(button => button.remove());
    addButton("Copy", shown.note, button => copy(content, shown.text, button));
    addButton("Again", shown.note, () => {
      if (running) return;
      messages.splice(-2, 2, ...before);
      asked.box.remove();
      shown.box.remove();
      answer(text);
    });
    shown.note.lastChild.className = "again";
    follow();
  } else if (trouble) {
    messages.splice(messages.length - 1, 1, ...before);
    asked.box.remove();
    shown.box.remove();
    showStart();
    $("text").value = [text, $("text").value].filter(part => part).join("\n");
  } else if (shown.thoughts.hidden) {
    shown.box.remove();
  }
}

function send() {
  const text = $("text").value;
  if (running || !text.trim()) return;
  $("text").value = "";
  following = true;
  followed = {top: 0, end: 0};
  answer(text);
}

$("form").addEventListener("submit", event => {
  event.preventDefault();
  send();
});
$("text").addEventListener("keydown", event => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
});
$("stop").addEventListener("click", () => running?.abort());
$("clear").addEventListener("click", () => {
  running?.abort();
  conversation = [];
  $("messages").replaceChildren($("start"));
  showStart();
  tell("");
});
$("messages").addEventListener("scroll", () => {
  const {scrollTop, clientHeight, scrollHeight} = $("messages");
  following = scrollTop + clientHeight > scrollHeight - 8;
});
for (const example of $("start").querySelectorAll("button")) {
  example.addEventListener("click", () => {
    $("text").value = example.textContent;
    send();
  });
}
$("token").addEventListener("change", showModel);
showModel();
