# Turns the output of `lit -v` into one line a test: "PASS name", "FAIL name" or "SKIP name: reason".
/^(PASS|XFAIL): /                           { result = "PASS" }
/^(FAIL|XPASS|UNRESOLVED|TIMEOUT|ERROR): /  { result = "FAIL" }
/^(UNSUPPORTED|SKIPPED): /                  { result = "SKIP" }
result != "" {
  sub(/^[A-Z]+: /, ""); sub(/ \([0-9]+ of [0-9]+\)$/, "")
  print result " " $0 (result == "SKIP" ? ": this machine lacks what its REQUIRES line names" : "")
  result = ""
}
