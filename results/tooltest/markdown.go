package tooltest

import (
	"regexp"
	"strings"
)

// Block is a fenced block of a Markdown document.
type Block struct {
	Heading string // of its section
	Kind    string // the first word after the fence, such as sh
	Name    string // the rest of that line: for a file, its name
	Text    string
	Line    int // of the document, from 1
}

var fenced = regexp.MustCompile("(?ms)^#+ +([^\n]*)$|^```(\\S*) *([^\n]*)\n(.*?)^```$")

// Blocks returns the fenced blocks of a document in order.
func Blocks(doc string) []Block {
	var blocks []Block
	var heading string
	for _, at := range fenced.FindAllStringSubmatchIndex(doc, -1) {
		if at[2] >= 0 {
			heading = doc[at[2]:at[3]]
			continue
		}
		blocks = append(blocks, Block{
			Heading: heading,
			Kind:    doc[at[4]:at[5]],
			Name:    doc[at[6]:at[7]],
			Text:    doc[at[8]:at[9]],
			Line:    1 + strings.Count(doc[:at[0]], "\n"),
		})
	}
	return blocks
}
