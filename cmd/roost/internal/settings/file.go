package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// entry is the value of one key of a configuration file.
type entry struct {
	line   int
	values []string
	list   bool // written as a YAML list or mapping, so commas do not separate values
}

// parseFile returns the entries of a YAML file and all problems of its syntax. The caller must check whether
// the keys exist.
func parseFile(path string, b []byte) (map[string]entry, []error) {
	root, err := parseYAML(b)
	if err != nil {
		return nil, []error{fmt.Errorf("%s: %w", path, err)}
	}
	if root == nil {
		return nil, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, []error{fmt.Errorf("%s:%d: want lines of the form key: value", path, root.Line)}
	}
	var problems []error
	entries := make(map[string]entry)
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, node := root.Content[i], root.Content[i+1]
		if first, twice := entries[key.Value]; twice {
			problems = append(problems, fmt.Errorf("%s:%d: key %q is also on line %d", path, key.Line, key.Value, first.line))
			continue
		}
		e, err := entryOf(node)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s:%d: %s: %w", path, key.Line, key.Value, err))
			e = entry{} // report only one problem per key
		}
		e.line = key.Line
		entries[key.Value] = e
	}
	return entries, problems
}

// parseYAML returns the only document in b, or nil if it is empty.
func parseYAML(b []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(b))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if err := dec.Decode(&more); err == nil {
		return nil, fmt.Errorf("line %d: a second YAML document begins; want only one", more.Line)
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	root := target(doc.Content[0])
	if root.Tag == "!!null" {
		return nil, nil
	}
	return root, nil
}

func entryOf(node *yaml.Node) (entry, error) {
	node = target(node)
	var e entry
	switch node.Kind {
	case yaml.ScalarNode:
		v, err := scalar(node)
		return entry{values: []string{v}}, err
	case yaml.SequenceNode:
		e.list = true
		for _, item := range node.Content {
			v, err := scalar(target(item))
			if err != nil {
				return e, err
			}
			e.values = append(e.values, v)
		}
	case yaml.MappingNode: // label: {rack: r1}
		e.list = true
		for i := 0; i+1 < len(node.Content); i += 2 {
			v, err := scalar(target(node.Content[i+1]))
			if err != nil {
				return e, err
			}
			e.values = append(e.values, node.Content[i].Value+"="+v)
		}
	default:
		return e, errors.New("want a value, a list or a mapping")
	}
	return e, nil
}

func scalar(node *yaml.Node) (string, error) {
	if node.Kind != yaml.ScalarNode {
		return "", errors.New("lists and mappings must not be nested")
	}
	if node.Tag == "!!null" {
		return "", errors.New("the value is missing")
	}
	return node.Value, nil
}

// target returns the node that an alias refers to, and any other node unchanged.
func target(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}
