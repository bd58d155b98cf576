package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// known has words of the text of each license, or of the notice with which a file grants it.
var known = []struct{ id, words string }{ //nolint:gochecknoglobals // a table
	{"Apache-2.0", "apache license version 2.0, january 2004"},
	{"Apache-2.0", "licensed under the apache license, version 2.0"},
	{"BSD-2-Clause", "redistribution and use in source and binary forms"},
	{"BSD-3-Clause", "may be used to endorse or promote products derived from this software"},
	{"ISC", "permission to use, copy, modify, and/or distribute this software for any purpose"},
	{"MIT", "permission is hereby granted, free of charge, to any person obtaining a copy of this software"},
	{"MPL-2.0", "mozilla public license, version 2.0"},
	{"MPL-2.0", "mozilla public license version 2.0"},
}

// license returns the SPDX expression of a text with one or more licenses. A text without a known license is an error:
// somebody must look at the license before the module is in a release.
func license(text string) (string, error) {
	text = strings.ToLower(strings.Join(strings.Fields(text), " "))
	var ids []string
	for _, k := range known {
		if strings.Contains(text, k.words) && (len(ids) == 0 || ids[len(ids)-1] != k.id) {
			ids = append(ids, k.id)
		}
	}
	expression := strings.Join(ids, " AND ")
	// The text of BSD-3-Clause contains that of BSD-2-Clause.
	expression = strings.ReplaceAll(expression, "BSD-2-Clause AND BSD-3-Clause", "BSD-3-Clause")
	if expression == "" {
		return "", errors.New("no known license in THIRD_PARTY_LICENSES; if its license is good, add it to internal/release/sbom/licenses.go")
	}
	return expression, nil
}

// licenseTexts returns the licenses of roost itself and of all that THIRD_PARTY_LICENSES lists, by the path of the module.
func licenseTexts(folder string) (map[string]string, error) {
	own, err := os.ReadFile(filepath.Join(folder, "LICENSE")) //nolint:gosec // the script names the folder
	if err != nil {
		return nil, err
	}
	others, err := os.ReadFile(filepath.Join(folder, "THIRD_PARTY_LICENSES")) //nolint:gosec // the script names the folder
	if err != nil {
		return nil, err
	}
	texts := map[string]string{module: string(own)}
	heading := regexp.MustCompile(`(?m)^==== (\S+)(?: v\S+)?$`)
	at := heading.FindAllSubmatchIndex(others, -1)
	for i, h := range at {
		end := len(others)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		path := string(others[h[2]:h[3]])
		if path == "Go" {
			path = "stdlib"
		}
		texts[path] = string(others[h[1]:end])
	}
	return texts, nil
}
