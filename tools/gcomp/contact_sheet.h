// Samples side by side as one image, each with a line of text under it.
#pragma once

#include <string>
#include <vector>

#include "data/image.h"

namespace gcomp::tools {

struct SheetTile {
  data::Image image;  ///< empty for one that could not be read
  std::string text;   ///< ASCII; other bytes become '?'
};

/// RGB, `columns` tiles in a line. Images are made to fit 128 x 128: larger ones smaller (antialiased), small ones a whole number
/// of times larger.
data::Image contact_sheet(const std::vector<SheetTile>& tiles, int columns = 8);

}  // namespace gcomp::tools
