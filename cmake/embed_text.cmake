# cmake -DIN=FILE -DOUT=HEADER -DNAME=kName -P embed_text.cmake: the text of a header as a C++ string constant.
file(READ "${IN}" text)
string(REPLACE "#pragma once\n" "" text "${text}")
file(WRITE "${OUT}" "// Made from a file of this project by cmake/embed_text.cmake.\n#pragma once\n\ninline constexpr char ${NAME}[] = R\"gcomp(${text})gcomp\";\n")
