// Shows Markdown. The library marked finds the structure of a text, and this makes elements of it, so no text of the
// model ever becomes markup.

function entitiesDecoded(text) {
  return text.replace(/&#?\w+;/g, entity =>
    new DOMParser().parseFromString(entity, "text/html").documentElement.textContent);
}

function codeBlock(token) {
  const block = document.createElement("pre");
  const code = document.createElement("code");
  code.append(token.text);
  block.append(code);
  addButton("Copy", block, button => copy(token.text, code, button));
  return block;
}

function tableOf(token, make) {
  const row = (cells, name) => {
    const line = document.createElement("tr");
    line.append(...cells.map(cell => make(name, cell.tokens)));
    return line;
  };
  const table = document.createElement("table");
  table.append(row(token.header, "th"), ...token.rows.map(cells => row(cells, "td")));
  return table;
}

// Returns a node or a text for one token of marked.
function nodeOf(token) {
  const make = (name, tokens = token.tokens) => {
    const element = document.createElement(name);
    element.append(...tokens.map(nodeOf));
    return element;
  };
  switch (token.type) {
    case "space": return "";
    case "paragraph": return make("p");
    case "heading": return make("h" + token.depth);
    case "blockquote": return make("blockquote");
    case "list_item": {
      const item = make("li");
      if (token.task) item.prepend(token.checked ? "\u2611 " : "\u2610 ");
      return item;
    }
    case "list": {
      const list = make(token.ordered ? "ol" : "ul", token.items);
      if (token.ordered) list.start = token.start;
      return list;
    }
    case "table": return tableOf(token, make);
    case "code": return codeBlock(token);
    case "hr": case "br": case "strong": case "em": case "del": return make(token.type, token.tokens ?? []);
    case "codespan": {
      const code = document.createElement("code");
      code.append(entitiesDecoded(token.text));
      return code;
    }
    case "link": {
      const link = make("a");
      // Other schemes, such as javascript, stay text.
      if (!/^(https?|mailto):/i.test(token.href)) return link.textContent;
      Object.assign(link, {href: token.href, target: "_blank", rel: "noopener noreferrer"});
      return link;
    }
    case "escape": return token.raw.slice(1);
    case "text": return token.tokens ? make("span") : entitiesDecoded(token.raw);
    default: return token.raw;  // Such as html.
  }
}

// Shows `text` in `element`. Blocks that have not changed keep their elements, so that a selection survives while an
// answer grows. Without the library, or for a text that it cannot read, the text is shown as it is.
function showMarkdown(element, text) {
  try {
    showBlocks(element, marked.lexer(text, {...marked.getDefaults(), breaks: true}));
    element.classList.add("markdown");
  } catch {
    element.classList.remove("markdown");
    element.textContent = text;
  }
}

function showBlocks(element, tokens) {
  const blocks = tokens.filter(token => token.type !== "space");
  const shown = [...element.childNodes];
  blocks.forEach((token, i) => {
    if (shown[i]?.source === token.raw) return;
    let node = nodeOf(token);
    if (typeof node === "string") {
      const paragraph = document.createElement("p");
      paragraph.append(node);
      node = paragraph;
    }
    node.source = token.raw;
    shown[i] ? shown[i].replaceWith(node) : element.append(node);
  });
  shown.slice(blocks.length).forEach(node => node.remove());
}
