package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// CompletionCmd is `a2ad completion`.
type CompletionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help is shown below the usage line.
func (*CompletionCmd) Help() string {
	return `The script asks a2ad for the words, so it stays valid for new versions:

  bash   echo 'source <(a2ad completion bash)' >>~/.bashrc
  zsh    echo 'source <(a2ad completion zsh)' >>~/.zshrc   (after compinit)
  fish   a2ad completion fish >~/.config/fish/completions/a2ad.fish`
}

// completeWord is the hidden first argument of a request for completions. The words after it are the command
// line so far; the last one is incomplete or empty. The answer has a line for each word that fits: the word, a
// tab, and what it means.
const completeWord = "__complete"

var completionScripts = map[string]string{
	"bash": `_a2ad() {
  local IFS=$'\n' line
  COMPREPLY=()
  while read -r line; do
    COMPREPLY+=("${line%%$'\t'*}")
  done < <("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o bashdefault -o default -F _a2ad a2ad
`,
	"zsh": `#compdef a2ad
_a2ad() {
  local -a found
  local line
  while IFS= read -r line; do
    found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
  done < <("${words[1]}" __complete "${(@)words[2,$CURRENT]}" 2>/dev/null)
  if (( $#found )); then _describe a2ad found; else _files; fi
}
compdef _a2ad a2ad
`,
	"fish": `complete -c a2ad -f -a '(
  set -l words (commandline -opc) (commandline -ct)
  set -l found ($words[1] __complete $words[2..-1] 2>/dev/null)
  if test (count $found) -gt 0
    printf "%s\n" $found
  else
    __fish_complete_path (commandline -ct)
  end
)'
`,
}

// Run prints.
func (c *CompletionCmd) Run(app *App) error {
	_, err := io.WriteString(app.Stdout, completionScripts[c.Shell])
	return err
}

// complete writes the words that may replace the last one of words.
func complete(w io.Writer, k *kong.Kong, words []string) error {
	if len(words) == 0 {
		words = []string{""}
	}
	at, last := follow(k.Model.Node, words[:len(words)-1]), words[len(words)-1]
	seen := map[string]bool{}
	for _, c := range at.candidates(last) {
		word, meaning := c[0], c[1]
		if !strings.HasPrefix(word, last) || seen[word] {
			continue
		}
		seen[word] = true
		if i := strings.IndexAny(meaning, ".:("); i > 0 {
			meaning = strings.TrimSpace(meaning[:i])
		}
		if _, err := fmt.Fprintf(w, "%s\t%s\n", word, meaning); err != nil {
			return err
		}
	}
	return nil
}

// position is what the words of a command line lead to.
type position struct {
	node *kong.Node
	flag *kong.Flag // whose value comes next; or nil
	args int        // arguments so far
	bare bool       // after --
}

func follow(node *kong.Node, words []string) position {
	p := position{node: node}
	for i, word := range words {
		switch {
		case p.flag != nil:
			p.flag = nil
		case p.bare:
			p.args++
		case word == "--":
			p.bare = true
		case strings.HasPrefix(word, "-") && len(word) > 1:
			if f := p.findFlag(word); f != nil && !f.IsBool() && !strings.Contains(word, "=") {
				p.flag = f
			}
		default:
			if child := p.findChild(word); child != nil {
				p.node = child
			} else if i > 0 || word != "help" {
				p.args++
			}
		}
	}
	return p
}

func (p *position) flags() []*kong.Flag {
	var list []*kong.Flag
	for _, group := range p.node.AllFlags(true) {
		list = append(list, group...)
	}
	return list
}

func (p *position) findFlag(word string) *kong.Flag {
	name, _, _ := strings.Cut(word, "=")
	for _, f := range p.flags() {
		if name == "--"+f.Name || f.Short != 0 && name == "-"+string(f.Short) {
			return f
		}
	}
	return nil
}

func (p *position) findChild(word string) *kong.Node {
	for _, c := range p.node.Children {
		if c.Type == kong.CommandNode && c.Name == word {
			return c
		}
	}
	return nil
}

// candidates returns the words that are possible next, and what they mean.
func (p *position) candidates(last string) (list [][2]string) {
	enum := func(v *kong.Value) {
		for _, word := range choices(v) {
			list = append(list, [2]string{word, v.Name})
		}
	}
	switch {
	case p.flag != nil:
		enum(p.flag.Value)
	case strings.HasPrefix(last, "-") && !p.bare:
		for _, f := range p.flags() {
			if !f.Hidden {
				list = append(list, [2]string{"--" + f.Name, f.Help})
			}
		}
	default:
		for _, c := range p.node.Children {
			if c.Type == kong.CommandNode && !c.Hidden {
				list = append(list, [2]string{c.Name, c.Help})
			}
		}
		if p.node.Parent == nil {
			list = append(list, [2]string{"help", "Show the help of a command"})
		}
		if p.args < len(p.node.Positional) {
			enum(p.node.Positional[p.args])
		}
	}
	return list
}

// choices returns the words that a flag, an argument or a setting accepts.
func choices(v *kong.Value) []string {
	text := v.Enum
	switch {
	case v.Tag == nil:
	case v.Tag.Type == "setting":
		text = v.Tag.Get("oneof")
	case v.Tag.Get("words") == "states": // any spelling is accepted, and this one is offered
		text = strings.ReplaceAll(stateNames(), " ", "")
	}
	return slices.DeleteFunc(strings.Split(text, ","), func(word string) bool { return word == "" })
}
