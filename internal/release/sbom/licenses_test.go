package main

import "testing"

func TestLicense(t *testing.T) {
	t.Parallel()
	const (
		bsd2 = "Redistribution and use in source\n  and binary forms, with or without modification"
		bsd3 = bsd2 + "\nmay be used to endorse or promote products\nderived from this software"
		mit  = "Permission is hereby granted, free of charge, to any person obtaining a copy\nof this software"
	)
	for text, want := range map[string]string{
		bsd2:                      "BSD-2-Clause",
		bsd3:                      "BSD-3-Clause",
		"Copyright X\n\n" + mit:   "MIT",
		bsd3 + "\n" + mit:         "BSD-3-Clause AND MIT",
		"All rights are reserved": "",
	} {
		got, err := license(text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("license of %q: %q, %v, want %q", text, got, err, want)
		}
	}
}
